"""How figures, metrics, settings and progress are shown: in tables, on pages, in CSV files, terminals and notebooks."""

import csv
import html
import math
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TextIO, TypeGuard

NONE = "–"
"""Written where there is no figure."""

# Control characters but for tabs and ends of lines, marks that reverse or hide text, and halves of characters.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]")


def printable(text: str) -> str:
    """Text whose control characters are spelled out: names from files and users cannot steer a terminal.

    >>> printable("ring\\x1b[2J")
    'ring\\\\x1b[2J'
    """
    return _UNPRINTABLE.sub(lambda match: ascii(match[0])[1:-1], text)


def say(text: object = "", end: str = "\n", error: bool = False) -> None:
    """Print, on standard output or standard error, what may contain names from files or users."""
    print(printable(str(text)), end=end, file=sys.stderr if error else sys.stdout, flush=error)


def write_csv(file: TextIO, rows: Iterable[Sequence[Any]]) -> None:
    """Write rows as CSV. Text that a spreadsheet would run as a formula gets an apostrophe in front; numbers stay.

    >>> write_csv(sys.stdout, [["=1+1", "-0.5", -0.5, "@ring", "ring"]])
    '=1+1,-0.5,-0.5,'@ring,ring
    """
    csv.writer(file, lineterminator="\n").writerows([_cell(value) for value in row] for row in rows)


def _cell(value: Any) -> Any:
    if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")):
        try:
            float(value)
        except ValueError:
            return f"'{value}"
    return value


def word(value: Any) -> str:
    """A setting as a table shows it.

    >>> word(0.10), word("ring"), word(None)
    ('0.1', 'ring', '–')
    """
    if value is None:
        return NONE
    return f"{value:g}" if isinstance(value, float) else str(value)


def said(value: Any, form: Callable[[Any], str] = str) -> str:
    """A setting in a sentence; "not set" if it is missing or empty.

    >>> said("ring"), said("ring", repr), said(0), said(None), said("")
    ('ring', "'ring'", '0', 'not set', 'not set')
    """
    return "not set" if value is None or value == "" else form(value)


def mean_std(mean: float | None, std: float | None, scale: float = 1.0) -> str:
    """A mean with one decimal and, if there are several seeds, their standard deviation with two, both times `scale`.

    >>> mean_std(0.7204, 0.0002, scale=100), mean_std(71.1, None), mean_std(None, None)
    ('72.0 ± 0.02', '71.1', '–')
    """
    if not _is_figure(mean):
        return NONE
    return f"{scale * mean:.1f} ± {scale * std:.2f}" if _is_figure(std) else f"{scale * mean:.1f}"


def percent(share: float | None) -> str:
    """A share of 1 in percent, with one decimal.

    >>> percent(0.8204)
    '82.0'
    """
    return mean_std(share, None, scale=100)


def size(count: float) -> str:
    """A number of bytes.

    >>> size(2.5e6)
    '2.5 MB'
    """
    if not _is_figure(count):
        return NONE
    name, unit = next(((n, u) for n, u in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)) if count >= u), ("B", 1.0))
    return f"{count / unit:.3g} {name}"


def duration(seconds: float) -> str:
    """A time in seconds, minutes or hours.

    >>> duration(1.234), duration(600), duration(9000)
    ('1.23 s', '10 min', '2.5 h')
    """
    if not _is_figure(seconds):
        return NONE
    if seconds < 90:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def html_table(head: Sequence[str], rows: Iterable[Sequence[object]], caption: str = "") -> str:
    """A table as notebooks show it; every text is escaped.

    >>> html_table(["a"], [["<b>"]])
    '<table><thead><tr><th>a</th></tr></thead><tbody><tr><td>&lt;b&gt;</td></tr></tbody></table>'
    """

    def line(values: Sequence[object], tag: str) -> str:
        cells = (f"<{tag}>{html.escape(printable(str(value)))}</{tag}>" for value in values)
        return f"<tr>{''.join(cells)}</tr>"

    told = f"<caption>{html.escape(printable(caption))}</caption>" if caption else ""
    titles = f"<thead>{line(head, 'th')}</thead>" if head else ""
    return f"<table>{told}{titles}<tbody>{''.join(line(row, 'td') for row in rows)}</tbody></table>"


def _is_figure(value: float | None) -> TypeGuard[float]:
    return value is not None and math.isfinite(value)


Row = dict[str, Any]
"""Figures by name: numbers, None where there is nothing to measure, and lists with a number per node."""

NOT_METRICS = frozenset(
    (
        "round", "epoch", "lr", "test_samples", "loss", "loss_min", "loss_max", "node_loss", "averaged_loss",
        "train_loss", "consensus_distance", "tracking_error", "gradient_norm", "bytes_sent", "samples_per_second",
        "seconds",
    )
)  # fmt: skip
"""Names that a row of figures has besides its metric's."""

USUAL_METRIC = {"cross-entropy": "accuracy", "mse": "mae", "token-cross-entropy": "perplexity", "bce": "f1"}
"""The metric of a run that names only its loss; "loss" for any other."""


@dataclass(frozen=True)
class MetricFacts:
    """What everything that shows, ranks or selects must know of a metric; rows name their figures after it.

    >>> mae = MetricFacts("mae", higher_is_better=False, percent=False)
    >>> mae.worst({"mae": 0.2, "mae_min": 0.1, "mae_max": 0.4}), mae.shown(0.2, 0.01), mae.goodness(0.2)
    (0.4, '0.2 ± 0.01', -0.2)
    >>> MetricFacts().shown(0.7204), MetricFacts().with_unit(0.7204)
    ('72.0', '72.0 %')
    """

    name: str = "accuracy"
    higher_is_better: bool = True
    percent: bool = True
    """Whether it is a share of 1 that is shown in percent."""

    @property
    def scale(self) -> float:
        """What a value is multiplied by where it is shown."""
        return 100.0 if self.percent else 1.0

    @property
    def title(self) -> str:
        """The name with its unit, for headings and axes."""
        return f"{self.name} (%)" if self.percent else self.name

    @property
    def direction(self) -> str:
        """Which way is better, in words."""
        return f"{'higher' if self.higher_is_better else 'lower'} is better"

    @property
    def described(self) -> str:
        """The name and the direction."""
        return f"{self.name}, {self.direction}"

    @property
    def worst_value(self) -> float:
        """Worse than anything that can be measured."""
        return -math.inf if self.higher_is_better else math.inf

    def goodness(self, value: float) -> float:
        """The value, or its negative, so that more is better."""
        return value if self.higher_is_better else -value

    def worst_of(self, values: "list[float]") -> float:
        """The worst of several values; nan of none."""
        return min(values, key=self.goodness, default=math.nan)

    def worst(self, row: Row) -> float | None:
        """The worst node's figure in a row; None where it was not measured."""
        return row.get(f"{self.name}_{'min' if self.higher_is_better else 'max'}")

    def best(self, row: Row) -> float | None:
        """The best node's figure in a row; None where it was not measured."""
        return row.get(f"{self.name}_{'max' if self.higher_is_better else 'min'}")

    def shown(self, mean: float | None, std: float | None = None) -> str:
        """A value as tables show it, without its unit."""
        if self.percent:
            return mean_std(mean, std, scale=100)
        if mean is None or not math.isfinite(mean):
            return NONE
        return f"{mean:.4g}" if std is None or not math.isfinite(std) else f"{mean:.4g} ± {std:.2g}"

    def with_unit(self, mean: float | None, std: float | None = None) -> str:
        """A value as sentences show it."""
        text = self.shown(mean, std)
        return f"{text} %" if self.percent and text != NONE else text


ACCURACY = MetricFacts()
"""The metric of runs that name none."""

Advance = Callable[..., None]
"""Moves a progress bar: `advance(fraction, text="")`."""

SECONDS_BETWEEN_LINES = 60.0
_SECONDS_BETWEEN_UPDATES = 0.2


@contextmanager
def progress_bar(title: str, shown: bool | None = None) -> Iterator[Advance]:
    """A bar; call `advance(fraction, text="")` to move it.

    By default it is a bar on a terminal and in a notebook, and elsewhere a line now and then (`lines`); False: nothing.
    """
    if shown is None and in_notebook():
        with _notebook_bar(title) as advance:
            yield advance
    elif sys.stderr.isatty() if shown is None else shown:
        with _terminal_bar(title) as advance:
            yield advance
    else:
        yield lines(title) if shown is None else lambda fraction, text="": None


def lines(title: str) -> Advance:
    """A callback that prints a line on standard error about once a minute; nothing in the first minute.

    The time left is estimated from the progress since the first call, which may be that of a run that continues.
    """
    began = told = time.monotonic()
    first: float | None = None

    def advance(fraction: float, text: str = "") -> None:
        nonlocal told, first
        now, first = time.monotonic(), fraction if first is None else first
        if now - told >= SECONDS_BETWEEN_LINES:
            told = now
            left = (now - began) * (1 - fraction) / (fraction - first) if first < fraction < 1 else 0.0
            parts = (f"{fraction:.0%}", text, f"about {duration(left)} left" if left else "")
            say(f"{title}: {', '.join(filter(None, parts))}", error=True)

    return advance


def in_notebook() -> bool:
    """Whether a notebook's kernel runs this."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    return shell is not None and hasattr(shell, "kernel")


@contextmanager
def _terminal_bar(title: str) -> Iterator[Advance]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    # Not as markup: a name such as "Sign [ours]" stays what it is.
    title_column, text_column = (
        TextColumn(f"{{task.{part}}}", markup=False) for part in ("description", "fields[text]")
    )
    columns = (title_column, BarColumn(), TaskProgressColumn(), TimeRemainingColumn(), text_column)
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(printable(title), total=1.0, text="")

        def advance(fraction: float, text: str = "") -> None:
            bar.update(task, completed=fraction, text=printable(text) or bar.tasks[task].fields["text"])

        yield advance


@contextmanager
def _notebook_bar(title: str) -> Iterator[Advance]:
    """A bar below the cell, in plain HTML: it needs no widgets, and its end stays in the stored notebook."""
    from IPython.display import display

    began, shown, latest = time.monotonic(), 0.0, (0.0, "")

    def content(note: str = "") -> dict[str, str]:
        fraction, text = latest
        told = " · ".join(printable(part) for part in (f"{fraction:.0%}", text, note) if part)
        bar = f'<progress max="1" value="{fraction:.3f}" style="vertical-align: middle"></progress>'
        return {
            "text/plain": f"{printable(title)}: {told}",
            "text/html": f"<div>{html.escape(printable(title))} {bar} {html.escape(told)}</div>",
        }

    handle = display(content(), raw=True, display_id=True)  # type: ignore[no-untyped-call]

    def advance(fraction: float, text: str = "") -> None:
        nonlocal shown, latest
        latest, now = (fraction, text or latest[1]), time.monotonic()
        if now - shown >= _SECONDS_BETWEEN_UPDATES:
            shown = now
            left = (now - began) / fraction * (1 - fraction) if fraction else 0.0
            handle.update(content(f"about {duration(left)} left" if left >= 1 else ""), raw=True)

    try:
        yield advance
    finally:
        handle.update(content(), raw=True)
