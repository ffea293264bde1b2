"""What commands print: tables on standard output, progress on standard error and only on a terminal."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]], caption: str = "") -> None:
    """A table whose first column is text and whose others are figures."""
    table = Table(caption=caption, caption_justify="left", box=None, pad_edge=False, header_style="bold")
    for k, title in enumerate(head):
        table.add_column(title, justify="left" if k == 0 else "right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    Console(width=None if sys.stdout.isatty() else 120, soft_wrap=False).print(table)


@contextmanager
def progress(title: str) -> Iterator[Callable[[float], None]]:
    """A progress bar that is moved by calling the given function with the fraction done."""
    console = Console(stderr=True)
    columns = (TextColumn(title), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(title, total=1.0)
        yield lambda done: bar.update(task, completed=done)
