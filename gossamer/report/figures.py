"""Figures as files: matplotlib, loaded when it is needed."""

from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gossamer._common.files import replacing
from gossamer.errors import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def save_figure(figure: "Figure", stem: Path) -> list[Path]:
    """Write `stem`.png and `stem`.svg and return their paths."""
    paths = [stem.with_suffix(".png"), stem.with_suffix(".svg")]
    for path in paths:
        with replacing(path) as temporary:
            render(figure, temporary, path.suffix[1:])
    return paths


def render(figure: "Figure", target: Path | StringIO, format: str) -> None:
    """Write a figure as "png", "svg" or "pdf"; the same figure gives the same bytes."""
    undated: dict[str, dict[str, None]] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
    with load_matplotlib().rc_context({"svg.hashsalt": "gossamer", "pdf.fonttype": 42}):
        figure.savefig(target, format=format, dpi=160, metadata=undated.get(format, {}))


def inline_svg(figure: "Figure") -> str:
    """A figure as an SVG element, to stand inside a page."""
    buffer = StringIO()
    render(figure, buffer, "svg")
    svg = buffer.getvalue()
    return svg[svg.index("<svg") :]


def check_matplotlib() -> None:
    """Refuse to begin work whose figures could not be drawn."""
    load_matplotlib()


def load_matplotlib() -> Any:
    """Without pyplot, which would take over the windows of the program that calls us."""
    try:
        import matplotlib.figure
    except ImportError:
        raise InputError(
            "Figures need matplotlib, which is not installed; run: pip install 'gossamer[report]'."
        ) from None
    return matplotlib
