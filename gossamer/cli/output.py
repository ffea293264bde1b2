"""What commands print."""

import math
import sys
from collections.abc import Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from gossamer._common.files import to_json
from gossamer._common.formatting import NONE, printable, say, word

if TYPE_CHECKING:
    from gossamer.experiments.selection import Cell
    from gossamer.experiments.store import StoredRun

ONLY_ONE = "every method was run with one step size only; another may suit it better (--lrs, or a list in the file)."


def print_table(
    head: Sequence[str], rows: Sequence[Sequence[str]], caption: str = "", figures: bool = True, text: int = 1
) -> None:
    """A table. The first `text` columns are left-aligned, and so are all others unless they hold figures."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for k, title in enumerate(head):
        # As Text: a name such as "Sign [ours]" is not markup.
        table.add_column(Text(printable(title)), justify="left" if k < text or not figures else "right", no_wrap=True)
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    console = Console(width=None if sys.stdout.isatty() else 120, soft_wrap=False)
    if not sys.stdout.isatty():
        # Other programs read this: nothing is truncated.
        console.width = max(120, Console(width=1_000_000).measure(table).maximum)
    console.print(table)
    if caption:
        # Not as the table's own caption, which is wrapped to the table's width and padded.
        console.print(printable(caption), style="table.caption", markup=False, highlight=False)


def print_json(value: Any) -> None:
    """JSON for other programs."""
    say(to_json(value, indent=1))


def print_run(run: "StoredRun", as_json: bool = False) -> None:
    """The settings of a run, how it ended, and its last figures."""
    if as_json:
        print_json(
            {
                "id": run.about["id"],
                "label": run.label,
                "network": run.network,
                "experiment": run.about["experiment"],
                "metric": run.metric.name,
                "higher_is_better": run.metric.higher_is_better,
                "directory": str(run.directory),
                "outcome": run.outcome or {"status": run.status},
                "rows": run.rows,
            }
        )
        return
    e = run.experiment
    length = f"{e.rounds} rounds" if e.rounds else f"{e.epochs:g} epochs"
    say(
        f"{run.label} on {e.dataset}, {e.nodes} nodes ({run.network}), {e.partition}, {e.topology}, "
        f"step size {e.lr:g}, {length}, seed {e.seed}: {run.status}"
    )
    if run.outcome and "reason" in run.outcome:
        say(run.outcome["reason"])
    if run.rows:
        row, metric = run.rows[-1], run.metric
        found = {
            metric.name: row.get(metric.name),
            "worst node": metric.worst(row),
            "best node": metric.best(row),
            "averaged model": row.get(f"averaged_{metric.name}"),
            "validation": row.get(f"validation_{metric.name}"),
        }
        found = {title: value for title, value in found.items() if value is not None}
        titles, shown = list(found), [metric.with_unit(value) for value in found.values()]
        if run.status != "done" and "test_samples" in run.rows[-1]:
            # Maybe not the whole test set.
            titles, shown = ["test samples", *titles], [str(run.rows[-1]["test_samples"]), *shown]
        _print_figures(["round", *titles, "consensus distance"], _figures(run.rows[-1], shown))
        say(f"{metric.name}: {metric.direction}")
    say(f"run: {run.directory}")


def _print_figures(head: list[str], figures: list[str]) -> None:
    """One row of figures; on a narrow terminal with headers of several lines, or with a line for each figure."""
    broken = [title.replace(" ", "\n") for title in head]
    if not sys.stdout.isatty() or _width(head, figures) <= Console().width:
        print_table(head, [figures])
    elif _width(broken, figures) <= Console().width:
        print_table(broken, [figures])
    else:
        (title, figure), *others = zip(head, figures, strict=True)
        print_table([title, figure], others)


def _width(head: list[str], figures: list[str]) -> int:
    """The width that `print_table` needs, with two blanks between columns."""
    columns = [max(map(len, [*title.split("\n"), figure])) for title, figure in zip(head, figures, strict=True)]
    return sum(columns) + 2 * (len(columns) - 1)


def _figures(row: dict[str, Any], percentages: list[str]) -> list[str]:
    distance = row.get("consensus_distance")
    return [str(row["round"]), *percentages, NONE if distance is None else f"{distance:.2g}"]


def print_ranking(cells: "Sequence[Cell]") -> None:
    """One line per cell: its metric with the best step size, mean ± standard deviation over seeds.

    Methods are ranked among cells that agree in the axes of the grid. A setting that only depends on the method (the
    graph that an override gives it, say) is a column but not an axis.
    """
    from gossamer.experiments.selection import ONE_STEP_SIZE, ranked, seeds_note

    varying = [k for k in differing([_settings(c) for c in cells]) if k not in ("method", "lr", "seed")]
    axes = [key for key in varying if any(len(values) > 1 for values in _by_method(cells, key).values())]
    own = [key for key in varying if key not in axes]
    panels: dict[tuple[str, ...], list[Cell]] = {}
    for cell in cells:
        panels.setdefault(_words(cell, axes), []).append(cell)
    rows = [
        [*panel, cell.label, *_words(cell, own), *_figures_of(cell), word(cell.lr), str(cell.seeds)]
        for panel, members in panels.items()
        for cell in ranked(members)
    ]
    metrics = list(dict.fromkeys(cell.metric for cell in cells))
    title = metrics[0].name if len(metrics) == 1 else "metric"
    head = [*axes, "method", *own, title, "worst node", "averaged model", "step size", "seeds"]
    only_one = all(len(c.candidates) == 1 for c in cells)
    caption = f"test {title}: mean over nodes of each node's own model"
    if lower := ", ".join(m.name for m in metrics if not m.higher_is_better):
        caption += f"; {lower}: lower is better"
    if not only_one:
        caption += "; step size: the best on validation data"
    print_table(head, rows, caption=caption, text=len(varying) + 1)
    notes = [warning for cell in cells for warning in cell.warnings]
    if only_one and any(cell.candidates[0].tried for cell in cells):
        notes = [*(note for note in notes if ONE_STEP_SIZE not in note), ONLY_ONE]
    for panel, members in panels.items():
        if note := seeds_note(members):
            notes.append(": ".join(filter(None, [", ".join(panel), note])))
    for note in dict.fromkeys(notes):
        say(f"note: {note}")


def differing(experiments: list[dict[str, Any]]) -> list[str]:
    """The keys in which experiments differ."""
    return [key for key in experiments[0] if len({e[key] for e in experiments}) > 1] if experiments else []


def _by_method(cells: "Sequence[Cell]", key: str) -> dict[str, set[Any]]:
    found: dict[str, set[Any]] = {}
    for cell in cells:
        found.setdefault(cell.label, set()).add(_settings(cell)[key])
    return found


def _words(cell: "Cell", keys: list[str]) -> tuple[str, ...]:
    return tuple(word(_settings(cell)[key]) for key in keys)


def _settings(cell: "Cell") -> dict[str, Any]:
    return {**cell.experiment.to_dict(), "network": cell.network}


def _figures_of(cell: "Cell") -> list[str]:
    """The metric, the worst node's, and that of the averaged model."""
    if cell.mean is None:
        return [cell.missing, NONE, NONE]
    metric, last = cell.metric, [run.rows[-1] for run in cell.runs]
    worst = metric.worst_of([value for row in last if (value := metric.worst(row)) is not None])
    averaged = fmean(row.get(f"averaged_{metric.name}", math.nan) for row in last)
    return [metric.with_unit(cell.mean, cell.std), metric.with_unit(worst), metric.with_unit(averaged)]
