"""The commands of `gossamer`, and how they are put together."""

from cyclopts import App

from gossamer._version import __version__
from gossamer.cli.compare import compare
from gossamer.cli.coordinator import coordinator
from gossamer.cli.data import data
from gossamer.cli.doctor import doctor
from gossamer.cli.export import export
from gossamer.cli.links import links
from gossamer.cli.paper import paper
from gossamer.cli.plan import plan
from gossamer.cli.report import report
from gossamer.cli.run import run
from gossamer.cli.show import show
from gossamer.cli.sweep import sweep
from gossamer.cli.synthetic import synthetic
from gossamer.cli.watch import watch

app = App(
    name="gossamer",
    help="Decentralized deep learning on heterogeneous data: the methods, the graphs, the paper's experiments.",
    version=__version__,
    # Markdown costs a quarter of the time that the first help takes; only the commands' own texts have paragraphs.
    help_format="plaintext",
    # main() does both
    suppress_keyboard_interrupt=False,
    result_action="return_value",
)
for command in (run, compare, sweep, watch, report, synthetic, export, plan, links, coordinator, doctor):
    app.command(command, help_format="markdown")
for group in (paper, show, data):
    group.help_format = "markdown"
    app.command(group)
app.register_install_completion_command(name="completion", add_to_startup=False)
