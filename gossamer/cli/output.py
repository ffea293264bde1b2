"""What commands print."""

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from gossamer._common.formatting import NONE, percent

if TYPE_CHECKING:
    from gossamer.experiments.store import StoredRun


def print_table(
    head: Sequence[str], rows: Sequence[Sequence[str]], caption: str = "", figures: bool = True, text: int = 1
) -> None:
    """A table whose first `text` columns are text and whose others are figures, or text too."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for k, title in enumerate(head):
        # As Text: a name such as "Sign [ours]" is no markup.
        table.add_column(Text(title), justify="left" if k < text or not figures else "right", no_wrap=True)
    for row in rows:
        table.add_row(*map(Text, row))
    console = Console(width=None if sys.stdout.isatty() else 120, soft_wrap=False)
    if not sys.stdout.isatty():
        # Other programs read this: nothing is cut off.
        console.width = max(120, Console(width=1_000_000).measure(table).maximum)
    console.print(table)
    if caption:
        # Not as the table's own caption, which is broken to the table's width and filled with blanks.
        console.print(caption, style="table.caption", markup=False, highlight=False)


def print_json(value: Any) -> None:
    """JSON for other programs."""
    from gossamer._common.files import without_infinities

    print(json.dumps(without_infinities(value), indent=1))


def print_run(run: "StoredRun", as_json: bool = False) -> None:
    """What a run was, how it ended and its last figures."""
    if as_json:
        about = {key: run.about.get(key) for key in ("id", "label", "network", "experiment")}
        outcome = run.outcome or {"status": run.status}
        print_json({**about, "directory": str(run.directory), "outcome": outcome, "rows": run.rows})
        return
    e = run.experiment
    network = run.about.get("network", "simulated")
    length = f"{e.rounds} rounds" if e.rounds else f"{e.epochs:g} epochs"
    print(
        f"{run.label} on {e.dataset}, {e.nodes} nodes ({network}), {e.partition}, {e.topology}, "
        f"step size {e.lr:g}, {length}, seed {e.seed}: {run.status}"
    )
    if run.outcome and "reason" in run.outcome:
        print(run.outcome["reason"])
    if run.rows:
        shown = [f"{percent(run.rows[-1][key])} %" for key in _PERCENTAGES if key in run.rows[-1]]
        titles = [title for key, title in _PERCENTAGES.items() if key in run.rows[-1]]
        _print_figures(["round", *titles, "consensus distance"], _figures(run.rows[-1], shown))
    print(f"run: {run.directory}")


_PERCENTAGES = {
    "accuracy": "accuracy",
    "accuracy_min": "worst node",
    "accuracy_max": "best node",
    "averaged_accuracy": "averaged model",
    "validation_accuracy": "validation",
}


def _print_figures(head: list[str], figures: list[str]) -> None:
    """One row of figures: on a terminal that is too narrow with heads of several lines, or else a line for each."""
    broken = [title.replace(" ", "\n") for title in head]
    if not sys.stdout.isatty() or _width(head, figures) <= Console().width:
        print_table(head, [figures])
    elif _width(broken, figures) <= Console().width:
        print_table(broken, [figures])
    else:
        (title, figure), *others = zip(head, figures, strict=True)
        print_table([title, figure], others)


def _width(head: list[str], figures: list[str]) -> int:
    """The columns of the terminal that `print_table` needs, with two blanks between its own."""
    columns = [max(map(len, [*title.split("\n"), figure])) for title, figure in zip(head, figures, strict=True)]
    return sum(columns) + 2 * (len(columns) - 1)


def _figures(row: dict[str, Any], percentages: list[str]) -> list[str]:
    distance = row.get("consensus_distance")
    return [str(row["round"]), *percentages, NONE if distance is None else f"{distance:.2g}"]
