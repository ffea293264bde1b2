"""The commands."""

from cyclopts import App

from gossamer._version import __version__
from gossamer.cli.compare import compare
from gossamer.cli.data import data
from gossamer.cli.doctor import doctor
from gossamer.cli.export import export
from gossamer.cli.paper import paper
from gossamer.cli.report import report
from gossamer.cli.run import run
from gossamer.cli.show_things import show
from gossamer.cli.sweep import sweep
from gossamer.cli.synthetic import synthetic

app = App(
    name="gossamer",
    help="Decentralized deep learning on heterogeneous data: the methods, the graphs, the paper's experiments.",
    version=__version__,
    # main() does both
    suppress_keyboard_interrupt=False,
    result_action="return_value",
)
app.command(run)
app.command(compare)
app.command(sweep)
app.command(report)
app.command(paper)
app.command(synthetic)
app.command(show)
app.command(export)
app.command(data)
app.command(doctor)
app.register_install_completion_command(name="completion", add_to_startup=False)
