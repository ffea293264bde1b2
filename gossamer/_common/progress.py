"""How far a computation is: a bar on a terminal or in a notebook, elsewhere a line about once a minute."""

import html
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from gossamer._common.formatting import duration, printable, say

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
