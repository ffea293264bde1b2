"""How numbers and settings are written, in tables, on pages, in CSV files, on the terminal and in notebooks."""

import csv
import html
import math
import re
import sys
from collections.abc import Callable, Iterable, Sequence
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
