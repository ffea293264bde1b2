"""The commands."""

from cyclopts import App

from gossamer._version import __version__
from gossamer.cli.data import data
from gossamer.cli.synthetic import synthetic

app = App(
    name="gossamer",
    help="Decentralized deep learning on heterogeneous data: the methods, the graphs, the paper's experiments.",
    version=__version__,
    # main() does both
    suppress_keyboard_interrupt=False,
    result_action="return_value",
)
app.command(synthetic)
app.command(data)
