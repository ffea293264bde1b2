"""What commands print."""

import json
import sys
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]], caption: str = "", figures: bool = True) -> None:
    """A table whose first column is text and whose others are figures, or text too."""
    table = Table(caption=caption, caption_justify="left", box=None, pad_edge=False, header_style="bold")
    for k, title in enumerate(head):
        table.add_column(title, justify="left" if k == 0 or not figures else "right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    Console(width=None if sys.stdout.isatty() else 120, soft_wrap=False).print(table)


def print_json(value: Any) -> None:
    """JSON for other programs."""
    print(json.dumps(value, indent=1))
