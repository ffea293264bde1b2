"""The figures of the synthetic experiment."""

from typing import TYPE_CHECKING

from gossamer.experiments.synthetic import SyntheticResult, initial_phase
from gossamer.report.figures import load_matplotlib
from gossamer.report.style import line_style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# A run that diverges is drawn up to here; axes beyond it would squeeze the others flat, and overflow.
HIGHEST = 1e12


def synthetic_figures(result: SyntheticResult) -> dict[str, "Figure"]:
    """The paper's two synthetic figures: the initial phase and the long run, one panel for each zeta^2."""
    rounds = result.config.rounds
    return {
        "initial_phase": _panels(result, upto=initial_phase(rounds), smooth=1),
        "long_run": _panels(result, upto=rounds, smooth=9),
    }


def _panels(result: SyntheticResult, upto: int, smooth: int) -> "Figure":
    matplotlib = load_matplotlib()
    zetas = result.config.zeta2
    with matplotlib.rc_context({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False}):
        figure: Figure = matplotlib.figure.Figure(figsize=(3.4 * len(zetas) + 1.6, 3.3), layout="constrained")
        axes = figure.subplots(1, len(zetas), sharey=True, squeeze=False)
        for ax, zeta2 in zip(axes[0], zetas, strict=True):
            for cell in (c for c in result.cells if c.zeta2 == zeta2):
                points = zip(cell.rounds, cell.curve, strict=True)
                shown = _smoothed([(r, v) for r, v in points if r <= upto and v < HIGHEST], smooth)
                ax.plot([r for r, _ in shown], [v for _, v in shown], label=cell.title, **line_style(cell.method))
            ax.set(yscale="log", xlabel="round", title=rf"$\zeta^2 = {zeta2:g}$", xlim=(0, upto))
            ax.locator_params(axis="x", nbins=4)
            ax.grid(True, which="major", alpha=0.25)
        axes[0][0].set_ylabel(r"$\|\nabla f(\bar{x})\|^2$")
        handles, labels = axes[0][0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside right center", frameon=False, fontsize=9)
    return figure


def _smoothed(points: list[tuple[int, float]], width: int) -> list[tuple[int, float]]:
    """A running mean over `width` neighbouring points, so that noise does not hide the level."""
    half = width // 2
    values = [v for _, v in points]
    windows = [values[max(0, k - half) : k + half + 1] for k in range(len(values))]
    return [(r, sum(w) / len(w)) for (r, _), w in zip(points, windows, strict=True)]
