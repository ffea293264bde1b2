"""Tables as Markdown, LaTeX (booktabs) and CSV."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gossamer._common.files import write_text
from gossamer._common.formatting import NONE, duration, mean_std, size, word, write_csv
from gossamer.experiments.store import StoredRun
from gossamer.report.comparison import Comparison, ComparisonPanel, MethodResult, collect

if TYPE_CHECKING:
    from gossamer.experiments.paper.verdict import PaperPanel as PaperPanel

_MOST_COLUMNS = 8


@dataclass(frozen=True)
class Table:
    """Text in rows; `best` are the cells (row, column) set in bold."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    best: frozenset[tuple[int, int]] = frozenset()


def ranking(panel: ComparisonPanel) -> Table:
    """The methods of a panel, best first, with their figures and what these cost."""
    metric = panel.metric
    unit = " (%)" if metric.percent else ""
    head = ["", "method", f"test {metric.title}", "step size", "seeds", f"worst node{unit}", f"averaged model{unit}",
            "sent per node", "time"]  # fmt: skip
    rows = []
    for rank, entry in enumerate(panel.entries, start=1):
        rows.append(
            [
                str(rank) if math.isfinite(entry.mean) else NONE,
                entry.title,
                figure(entry),
                step_size(entry),
                seeds(entry),
                metric.shown(entry.worst_node),
                metric.shown(entry.last("averaged")),
                size(entry.last("bytes")),
                duration(entry.last("seconds")),
            ]
        )
    ahead = panel.entries.index(panel.best) if panel.best else None
    return Table(head, rows, frozenset({(ahead, 1), (ahead, 2)} if ahead is not None else ()))


def matrix(comparison: Comparison) -> Table:
    """Methods and panels, the form of the paper's tables; bold is what is ahead of all others in its panel.

    One row per method, or with many panels one row per panel.
    """
    entries = [e for panel in comparison.panels for e in panel.entries]
    titles = list(dict.fromkeys(e.title for e in sorted(entries, key=lambda e: comparison.methods.index(e.method))))
    rows = [[title, *(NONE for _ in comparison.panels)] for title in titles]
    best = set()
    for column, panel in enumerate(comparison.panels, start=1):
        for entry in panel.entries:
            row = titles.index(entry.title)
            rows[row][column] = figure(entry)
            if entry is panel.best:
                best.add((row, column))
    head = ["method", *(panel.name for panel in comparison.panels)]
    if len(comparison.panels) <= _MOST_COLUMNS:
        return Table(head, rows, frozenset(best))
    turned = [list(row) for row in zip(head, *rows, strict=True)]
    return Table(["setting", *turned[0][1:]], turned[1:], frozenset((c - 1, r + 1) for r, c in best))


def figure(entry: MethodResult) -> str:
    """Mean ± standard deviation over the seeds, or why there is none."""
    return entry.missing or entry.metric.shown(entry.mean, entry.std)


def step_size(entry: MethodResult) -> str:
    """The chosen step size, with a star if it is the smallest or largest of those tried."""
    lr = entry.cell.lr
    return NONE if lr is None else f"{lr:g}{'*' if entry.cell.at_edge else ''}"


def seeds(entry: MethodResult) -> str:
    """The number of seeds in the mean, and out of how many if some are missing."""
    done = entry.cell.seeds
    return str(done) if done == entry.wanted else f"{done} of {entry.wanted}"


def beside_paper(panel: "PaperPanel") -> Table:
    """What was measured, what the paper printed, and the difference in points, method by method."""
    rows = [
        [
            line.label,
            "diverged" if line.diverged else mean_std(line.mean, line.std),
            mean_std(line.paper_mean, line.paper_std),
            NONE if line.difference is None else f"{line.difference:+.1f}".replace("-", "−"),
            word(line.lr),
            str(line.seeds),
        ]
        for line in panel.lines
    ]
    return Table(["method", "measured", "paper", "difference", "step size", "seeds"], rows)


def markdown(table: Table) -> str:
    """A pipe table."""

    def cell(text: str, bold: bool = False) -> str:
        safe = text.replace("|", "\\|")
        return f"**{safe}**" if bold else safe

    lines = ["| " + " | ".join(map(cell, table.head)) + " |", "|" + "---|" * len(table.head)]
    for r, row in enumerate(table.rows):
        lines.append("| " + " | ".join(cell(text, (r, c) in table.best) for c, text in enumerate(row)) + " |")
    return "\n".join(lines) + "\n"


def latex(table: Table) -> str:
    """A tabular with the rules of booktabs; needs \\usepackage{booktabs}."""
    columns = "".join("l" if title in ("method", "setting") else "r" for title in table.head)
    lines = [r"% \usepackage{booktabs}", rf"\begin{{tabular}}{{{columns}}}", r"\toprule"]
    lines += [" & ".join(map(_latex, table.head)) + r" \\", r"\midrule"]
    for r, row in enumerate(table.rows):
        cells = (rf"\textbf{{{_latex(v)}}}" if (r, c) in table.best else _latex(v) for c, v in enumerate(row))
        lines.append(" & ".join(cells) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


def results_csv(comparison: Comparison) -> str:
    """One line per method and panel, with unrounded values and all settings of the panel."""
    settings = list(comparison.panels[0].settings)
    head = ["method", *settings, "lr", "mean", "std", "seeds", "seeds_wanted", "note"]
    rows: list[list[Any]] = [head]
    for panel in comparison.panels:
        for entry in panel.entries:
            own = {**panel.settings, **entry.own_settings}
            figures = [_plain(entry.mean), _plain(entry.std), entry.cell.seeds, entry.wanted]
            rows.append([entry.method, *own.values(), entry.cell.lr, *figures, entry.missing])
    return _csv(rows)


def write_tables(runs: Iterable[StoredRun] | Comparison, directory: Path) -> list[Path]:
    """Write ranking (per panel), matrix and results.csv into `directory`; returns the paths."""
    comparison = collect(runs)
    several = len(comparison.panels) > 1
    tables = {f"ranking-{panel.key}" if several else "ranking": ranking(panel) for panel in comparison.panels}
    if several:
        tables["matrix"] = matrix(comparison)
    texts = {"results.csv": results_csv(comparison)}
    for name, table in tables.items():
        texts |= {f"{name}.md": markdown(table), f"{name}.tex": latex(table), f"{name}.csv": plain_csv(table)}
    for name, text in texts.items():
        write_text(directory / name, text)
    return [directory / name for name in texts]


def plain_csv(table: Table) -> str:
    """The table as CSV."""
    return _csv([table.head, *table.rows])


def _csv(rows: Sequence[Sequence[Any]]) -> str:
    buffer = StringIO()
    write_csv(buffer, rows)
    return buffer.getvalue()


def _plain(value: float) -> float | str:
    return value if math.isfinite(value) else ""


_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$", "–": "--", "²": r"\textsuperscript{2}",
    "·": r"$\cdot$", "−": "$-$",
}  # fmt: skip


def _latex(text: str) -> str:
    return "".join(_LATEX.get(letter, letter) for letter in text)
