"""Methods from best to worst, as commands print them."""

from statistics import fmean
from typing import TYPE_CHECKING, Any

from gossamer._common.formatting import NONE, mean_std, percent, word
from gossamer.cli.output import print_table

if TYPE_CHECKING:
    from gossamer.experiments.selection import Cell

ONLY_ONE = "every method was run with one step size only; another may suit it better (--lrs, or a list in the file)."


def print_ranking(cells: "list[Cell]") -> None:
    """One line per cell: its accuracy with the best step size, mean ± standard deviation over seeds.

    Methods are ranked among cells that agree in the axes of the grid; what a method brings with it is no axis.
    """
    from gossamer.experiments.selection import ONE_STEP_SIZE, ranked, seeds_note

    varying = [k for k in differing([c.experiment.to_dict() for c in cells]) if k not in ("method", "lr", "seed")]
    axes = [key for key in varying if any(len(values) > 1 for values in _by_method(cells, key).values())]
    own = [key for key in varying if key not in axes]
    panels: dict[tuple[str, ...], list[Cell]] = {}
    for cell in cells:
        panels.setdefault(_words(cell, axes), []).append(cell)
    rows = [
        [*panel, cell.label, *_words(cell, own), *_figures(cell), word(cell.lr), str(cell.seeds)]
        for panel, members in panels.items()
        for cell in ranked(members)
    ]
    head = [*axes, "method", *own, "accuracy", "worst node", "averaged model", "step size", "seeds"]
    only_one = all(len(c.candidates) == 1 for c in cells)
    caption = "test accuracy: mean over nodes of each node's own model"
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
        print(f"note: {note}")


def differing(experiments: list[dict[str, Any]]) -> list[str]:
    """The keys in which experiments differ."""
    return [key for key in experiments[0] if len({e[key] for e in experiments}) > 1] if experiments else []


def _by_method(cells: "list[Cell]", key: str) -> dict[str, set[Any]]:
    found: dict[str, set[Any]] = {}
    for cell in cells:
        found.setdefault(cell.label, set()).add(getattr(cell.experiment, key))
    return found


def _words(cell: "Cell", keys: list[str]) -> tuple[str, ...]:
    return tuple(word(getattr(cell.experiment, key)) for key in keys)


def _figures(cell: "Cell") -> list[str]:
    """Accuracy, the worst node's, and that of the averaged model."""
    if cell.mean is None:
        return [cell.missing, NONE, NONE]
    last = [run.rows[-1] for run in cell.runs]
    worst, averaged = min(r["accuracy_min"] for r in last), fmean(r["averaged_accuracy"] for r in last)
    return [f"{mean_std(cell.mean, cell.std, scale=100)} %", f"{percent(worst)} %", f"{percent(averaged)} %"]
