"""One self-contained HTML page: no script, no network, light and dark, readable on a phone and in print."""

from collections.abc import Sequence
from html import escape
from io import StringIO
from typing import TYPE_CHECKING

from gossamer.report.figures import render

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_STYLE = """
:root { color-scheme: light dark; --ink: #1b1b1b; --paper: #fff; --rule: #d8d8d8; --soft: #666; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8e8e8; --paper: #16181b; --rule: #3a3d42; --soft: #9aa0a6; } }
body { margin: 0 auto; padding: 1.5rem 1rem 3rem; max-width: 62rem; background: var(--paper); color: var(--ink);
  font: 1rem/1.55 system-ui, sans-serif; }
h1 { font-size: 1.6rem; margin: 0 0 .3rem; } h2 { font-size: 1.15rem; margin: 2.2rem 0 .5rem; }
p.lead, .note { color: var(--soft); }
figure { margin: 1rem 0; overflow-x: auto; background: #fff; border-radius: .4rem; }
figure > svg { width: 100%; min-width: 38rem; height: auto; display: block; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .8rem; border-bottom: 1px solid var(--rule); text-align: right; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; } tr.best td { font-weight: 650; }
code, pre { font-family: ui-monospace, monospace; font-size: .9rem; } pre { overflow-x: auto; padding: .7rem;
  border: 1px solid var(--rule); border-radius: .4rem; }
@media print { body { max-width: none; } figure { break-inside: avoid; } }
"""


def page(title: str, lead: str, sections: Sequence[str], style: str = "") -> str:
    """The whole page. `sections` are pieces of HTML, made by the functions below; `style` adds to the style sheet."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}{style}</style></head>\n"
        f'<body><h1>{escape(title)}</h1>\n<p class="lead">{escape(lead)}</p>\n'
        + "\n".join(sections)
        + "\n</body></html>\n"
    )


def heading(text: str) -> str:
    """A section's title."""
    return f"<h2>{escape(text)}</h2>"


def paragraph(text: str, note: bool = False) -> str:
    """A paragraph of plain text."""
    return f'<p class="note">{escape(text)}</p>' if note else f"<p>{escape(text)}</p>"


def code(text: str) -> str:
    """A command to copy."""
    return f"<pre><code>{escape(text)}</code></pre>"


def table(head: Sequence[str], rows: Sequence[Sequence[str]], best: int | None = None) -> str:
    """A table; row number `best` is set in bold."""
    top = "".join(f"<th>{escape(h)}</th>" for h in head)
    body = "".join(
        f"<tr{' class=best' if k == best else ''}>" + "".join(f"<td>{escape(v)}</td>" for v in row) + "</tr>\n"
        for k, row in enumerate(rows)
    )
    return f'<div class="scroll"><table><thead><tr>{top}</tr></thead>\n<tbody>{body}</tbody></table></div>'


def drawing(figure: "Figure", description: str) -> str:
    """A matplotlib figure, drawn into the page as SVG."""
    buffer = StringIO()
    render(figure, buffer, "svg")
    svg = buffer.getvalue()
    return f'<figure role="img" aria-label="{escape(description)}">{svg[svg.index("<svg") :]}</figure>'
