"""Progress bars: on standard error, and only on a terminal."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Advance = Callable[..., None]


@contextmanager
def progress_bar(title: str, shown: bool | None = None) -> Iterator[Advance]:
    """A bar; call `advance(fraction, text="")` to move it. By default it is shown only on a terminal."""
    if not (sys.stderr.isatty() if shown is None else shown):
        yield lambda fraction, text="": None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, TextColumn("{task.fields[text]}"), console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=1.0, text="")

        def advance(fraction: float, text: str = "") -> None:
            bar.update(task, completed=fraction, text=text or bar.tasks[task].fields["text"])

        yield advance
