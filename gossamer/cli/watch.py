"""`gossamer watch`: running simulations, sweeps and real nodes, followed on a terminal or as a page."""

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from gossamer.errors import InputError

if TYPE_CHECKING:
    from rich.console import Group

    from gossamer.report.watching import Snapshot


def watch(*runs: str, html: Path | None = None, every: float = 2.0, once: bool = False) -> None:
    """Follow runs, sweeps and real nodes: how far, how good, how long still; who waits for whom, and since when.

    Runs and sweeps are directories. Nodes are addresses at which their optimizers serve figures
    (GOSSAMER_METRICS_PORT=9100, or optimizer.metrics(port=9100)). It ends when all runs have ended; nodes are followed
    until Ctrl-C.

    Example: gossamer watch runs/ 10.0.0.1:9100 10.0.0.2:9100

    Parameters
    ----------
    runs
        Directories of runs, or addresses of nodes: HOST:PORT, or HOST:FIRST-LAST for the processes of one machine.
    html
        Also write this page, which loads itself again.
    every
        Seconds between two looks.
    once
        Look once, and end.
    """
    from gossamer._common.files import check_writable, write_text
    from gossamer.report.watching import Watch, page

    if not every > 0:
        raise InputError(f"--every is the number of seconds between two looks, so it must be above 0, not {every:g}.")
    watching = Watch(runs)
    if html is not None:
        check_writable(html)
    from rich.console import Console
    from rich.live import Live

    terminal = sys.stdout.isatty()
    console = Console(width=None if terminal else 80)
    live = Live(console=console, auto_refresh=False) if terminal and not once else None
    try:
        if live:
            live.start()
        while True:
            look = watching.look()
            if html is not None:
                write_text(html, page(look, every))
            if live:
                live.update(shown(look), refresh=True)
            elif once or html is None:
                console.print(shown(look))
            if once or look.settled:
                return
            time.sleep(every)
    except KeyboardInterrupt:
        return
    finally:
        if live:
            live.stop()


def shown(look: "Snapshot") -> "Group":
    """The tables and sentences of a look."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    from gossamer._common.formatting import printable

    parts: list[Table | Text] = []
    for title, table in look.tables():
        parts.append(Text(printable(title), style="bold"))
        rich = Table(box=None, pad_edge=False, header_style="dim")
        for k, name in enumerate(table.head):
            left = k == 0 or name in ("status", "waits for")
            rich.add_column(
                Text(printable(name)), justify="left" if left else "right", no_wrap=True, overflow="ellipsis"
            )
        for row in table.rows:
            rich.add_row(*(Text(printable(cell)) for cell in row))
        if table.rows:
            parts.append(rich)
    parts += [Text(printable(sentence), style="yellow") for sentence in look.sentences()]
    return Group(*parts)
