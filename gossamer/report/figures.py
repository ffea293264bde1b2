"""Figures for papers: PNG and SVG by matplotlib."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from gossamer.errors import GossamerError
from gossamer.experiments.synthetic import SyntheticResult, initial_phase
from gossamer.report.files import replacing
from gossamer.report.style import line_style

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def synthetic_figures(result: SyntheticResult) -> dict[str, "Figure"]:
    """The paper's two synthetic figures: the initial phase and the long run, one panel for each zeta^2."""
    rounds = result.config.rounds
    return {
        "initial_phase": _panels(result, upto=initial_phase(rounds), smooth=1),
        "long_run": _panels(result, upto=rounds, smooth=9),
    }


def save_figure(figure: "Figure", stem: Path) -> list[Path]:
    """Write `stem`.png and `stem`.svg and return their paths."""
    paths = [stem.with_suffix(".png"), stem.with_suffix(".svg")]
    for path in paths:
        with replacing(path) as temporary:
            figure.savefig(
                temporary, format=path.suffix[1:], dpi=160, metadata={"Date": None} if path.suffix == ".svg" else {}
            )
    return paths


def _panels(result: SyntheticResult, upto: int, smooth: int) -> "Figure":
    plt = _pyplot()
    figure: Figure
    zetas = result.config.zeta2
    with plt.rc_context(
        {"font.size": 10, "axes.spines.top": False, "axes.spines.right": False, "svg.hashsalt": "gossamer"}
    ):
        figure, axes = plt.subplots(
            1, len(zetas), figsize=(3.4 * len(zetas) + 1.6, 3.3), sharey=True, squeeze=False, layout="constrained"
        )
        for ax, zeta2 in zip(axes[0], zetas, strict=True):
            for cell in (c for c in result.cells if c.zeta2 == zeta2):
                shown = [(r, v) for r, v in zip(cell.rounds, cell.curve, strict=True) if r <= upto]
                xs, ys = zip(*_smoothed(shown, smooth), strict=True)
                ax.plot(xs, ys, label=cell.title, **line_style(cell.method))
            ax.set(yscale="log", xlabel="round", title=rf"$\zeta^2 = {zeta2:g}$", xlim=(0, upto))
            ax.locator_params(axis="x", nbins=4)
            ax.grid(True, which="major", alpha=0.25)
        axes[0][0].set_ylabel(r"$\|\nabla f(\bar{x})\|^2$")
        handles, labels = axes[0][0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside right center", frameon=False, fontsize=9)
        plt.close(figure)
    return figure


def _smoothed(points: list[tuple[int, float]], width: int) -> list[tuple[int, float]]:
    """A running mean over `width` neighbouring points, so that noise does not hide the level."""
    half = width // 2
    values = [v for _, v in points]
    windows = [values[max(0, k - half) : k + half + 1] for k in range(len(values))]
    return [(r, sum(w) / len(w)) for (r, _), w in zip(points, windows, strict=True)]


def _pyplot() -> Any:
    try:
        import matplotlib
    except ImportError:
        raise GossamerError(
            "Figures need matplotlib, which is not installed; run: pip install 'gossamer[report]'."
        ) from None
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt
