"""Make the figures of the documentation and, beside each, the numbers it shows.

python docs/figures.py                     all of them, about ten minutes on two cores
python docs/figures.py nodes digits        some of them: nodes, synthetic, digits, partitions

Every figure is docs/figures/NAME.png and docs/figures/NAME.json; the pages take their numbers from the JSON.
"""

import json
import sys
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib
import torch
from matplotlib.figure import Figure
from PIL import Image

import gossamer as gs
from gossamer._common.files import replacing, write_text
from gossamer.experiments.synthetic import SyntheticConfig, run_synthetic
from gossamer.problems import Quadratic
from gossamer.report.figures import draw_bars
from gossamer.report.style import line_style
from gossamer.topology import Topology

HERE = Path(__file__).parent / "figures"
SHOWN = ("dsgd", "dsgdm", "gradient-tracking", "momentum-tracking")
STYLE = {"font.size": 10, "axes.spines.top": False, "axes.spines.right": False}


def nodes() -> tuple[Figure, dict[str, Any]]:
    """Where five nodes end: their own optima, the common one, and the points at which two methods stop."""
    lr, beta, rounds = 0.03, 0.9, 4000
    scales = torch.tensor([0.6, 0.8, 1.0, 1.2, 1.4], dtype=torch.float64)
    turn = 2 * torch.pi * torch.arange(5) / 5
    centres = torch.stack([turn.cos(), turn.sin()], 1).double() * torch.tensor([[1.0], [0.4], [1.3], [0.8], [1.1]])
    problem = Quadratic(scales, centres * scales[:, None])
    ends, numbers = {}, {"lr": lr, "beta": beta, "rounds": rounds, "optimum": problem.optimum().tolist(), "methods": {}}
    for method in (gs.DSGD(), gs.DSGDm(beta=beta), gs.MomentumTracking(beta=beta)):
        run = gs.minimize(problem, method, gs.topology.ring(5), lr=lr, rounds=rounds)
        ends[method] = run.x
        far = (run.x - problem.optimum()).norm(dim=1)
        numbers["methods"][method.name] = {
            "title": method.facts.title,
            "largest_distance": float(far.max()),
            "mean_point_distance": float((run.x.mean(0) - problem.optimum()).norm()),
        }
    figure = Figure(figsize=(9, 3.2), layout="constrained")
    axes = figure.subplots(1, 3, sharex=True, sharey=True)
    for ax, (method, x) in zip(axes, ends.items(), strict=True):
        colour = line_style(method.name)["color"]
        for own, here in zip(centres, x, strict=True):
            ax.plot([own[0], here[0]], [own[1], here[1]], color="#bbb", linewidth=0.8, zorder=1)
        ax.plot(*centres.T, "o", color="#888", markersize=5, label="a node's own optimum")
        ax.plot(*x.T, "o", color=colour, markersize=7, label="where the node stops")
        ax.plot(*problem.optimum(), "x", color="black", markersize=9, markeredgewidth=2, label="the common optimum")
        ax.set(title=method.facts.title, aspect="equal")
        ax.grid(True, alpha=0.25)
    handles = [h for h in axes[0].get_lines() if not str(h.get_label()).startswith("_")]
    figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    return figure, numbers


def synthetic() -> tuple[Figure, dict[str, Any]]:
    """The paper's quadratics: |grad f(xbar)|^2 round by round, with and without heterogeneity."""
    torch.set_num_threads(1)
    config = SyntheticConfig(draws=2, zeta2=(0.0, 25.0, 50.0))
    result = run_synthetic(config)
    figure = Figure(figsize=(9, 3.2), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    for ax, zeta2 in zip(axes, (0.0, 50.0), strict=True):
        for name in SHOWN:
            cell = next(c for c in result.by_method[name] if c.zeta2 == zeta2)
            points = [(r, v) for r, v in zip(cell.rounds, cell.curve, strict=True) if r % 200 == 0]
            ax.plot(*zip(*points, strict=True), label=cell.title, **line_style(name))
        ax.set(yscale="log", xlabel="round", title=f"ζ² = {zeta2:g}")
        ax.grid(True, alpha=0.25)
    axes[0].set_ylabel("|∇f(mean of x)|²")
    axes[1].legend(frameon=False, fontsize=9)
    numbers = {
        "nodes": config.nodes,
        "dim": config.dim,
        "lr": config.lr,
        "beta": config.beta,
        "rounds": config.rounds,
        "draws": config.draws,
        "zeta2": list(config.zeta2),
        "methods": {
            name: {
                "title": cells[0].title,
                "graph": cells[0].topology,
                "tail_means": [float(f"{c.tail_mean:.4g}") for c in cells],
            }
            for name, cells in result.by_method.items()
        },
    }
    return figure, numbers


DIFFERENT, EQUAL = "k-class:k=2", "iid"
PARTITIONS = {"every node has all classes": EQUAL, "every node has 2 of 10 classes": DIFFERENT}
METHODS = ("dsgd", "dsgdm", "qg-dsgdm", "decentlam", "gradient-tracking", "momentum-tracking")  # those of the paper
# With beta = 0.9 a step of 0.02 is in effect one of 0.02/(1 - 0.9) = 0.2. These and the number of epochs were settled
# after looking at results: docs/drift.md says what was tried before. Change both places together.
STEP_SIZES = {"with": (0.02, 0.01), "without": (0.2, 0.05)}
SEEDS = {EQUAL: (0,), DIFFERENT: (0, 1)}
SETTING = {"dataset": "digits", "model": "small-cnn", "nodes": 8, "batch_size": 32, "epochs": 40}


def digits() -> tuple[Figure, dict[str, Any]]:
    """The paper's methods on the digits, with equal and with different nodes.

    Every method gets the better of two step sizes, by validation accuracy with different nodes.
    """
    dataset = gs.data.load("digits")
    numbers: dict[str, Any] = {**SETTING, "seeds": SEEDS, "step_sizes": STEP_SIZES, "methods": {}}
    curves: dict[tuple[str, str], gs.engine.History] = {}
    for name in METHODS:
        method, graph = gs.methods.get(name), gs.topology.ring(8)
        sizes = STEP_SIZES["with" if "beta" in method.hyperparameters else "without"]
        first = {lr: _train(dataset, DIFFERENT, method, graph, lr, SEEDS[DIFFERENT][0]) for lr in sizes}
        best = max(first, key=lambda lr: first[lr].last["validation_accuracy"])
        entry: dict[str, Any] = {"title": method.facts.title, "graph": graph.name, "lr": best, "partitions": {}}
        for spec, seeds in SEEDS.items():
            begun = [first[best]] if spec == DIFFERENT else []
            runs = begun + [_train(dataset, spec, method, graph, best, seed) for seed in seeds[len(begun) :]]
            curves[name, spec] = runs[0]
            entry["partitions"][spec] = {
                key: [round(float(run.last[key]), 6) for run in runs]
                for key in ("accuracy", "accuracy_min", "averaged_accuracy", "consensus_distance")
            }
            print(name, spec, best, entry["partitions"][spec]["accuracy"], flush=True)
        numbers["methods"][name] = entry
    figure = Figure(figsize=(9, 3.2), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    for ax, (title, spec) in zip(axes, PARTITIONS.items(), strict=True):
        for name in SHOWN:
            history = curves[name, spec]
            ax.plot(history["epoch"], history["accuracy"], label=gs.methods.find(name).facts.title, **line_style(name))
            ax.fill_between(
                history["epoch"],
                history["accuracy_min"],
                history["accuracy_max"],
                color=line_style(name)["color"],
                alpha=0.12,
            )
        ax.set(xlabel="epoch", title=title, ylim=(0, 1))
        ax.grid(True, alpha=0.25)
    axes[0].set_ylabel("test accuracy of the nodes")
    axes[1].legend(frameon=False, fontsize=9, loc="lower right")
    return figure, numbers


def partitions() -> tuple[Figure, dict[str, Any]]:
    """Four partitions of the digits over eight nodes."""
    data = gs.data.load("digits")
    specs = ("iid", "k-class:k=2", "shards:per_node=2", "dirichlet:alpha=0.1,min_size=20")
    figure = Figure(figsize=(9, 2.8), layout="constrained")
    axes = figure.subplots(1, len(specs), sharey=True)
    numbers: dict[str, Any] = {}
    for ax, spec in zip(axes, specs, strict=True):
        split = data.split(gs.partition.get(spec, nodes=8)).partition
        numbers[spec] = {"sizes": split.sizes, "label_distance": round(split.label_distance, 4)}
        draw_bars(ax, split.label_counts.tolist(), data.classes)
        ax.set(title=spec.split(",")[0])
    axes[0].set_ylabel("samples, a colour per class")
    return figure, numbers


def _train(
    dataset: gs.data.Dataset, spec: str, method: gs.Method, graph: Topology, lr: float, seed: int
) -> gs.engine.History:
    parts = dataset.split(gs.partition.get(spec, nodes=SETTING["nodes"], seed=seed))
    return gs.simulate(
        gs.models.SmallCNN,
        parts,
        method,
        graph,
        lr=lr,
        batch_size=SETTING["batch_size"],
        epochs=SETTING["epochs"],
        seed=seed,
        evaluate_every=SETTING["epochs"] / 8,
        workers=1,
        progress=False,
    ).history


def _save(figure: Figure, path: Path) -> None:
    """A PNG of 256 colours: a third of the size, without a visible difference."""
    picture = BytesIO()
    figure.savefig(picture, format="png", dpi=110)
    with replacing(path) as temporary:
        Image.open(picture).convert("RGB").quantize(256).save(temporary, format="png", optimize=True)


FIGURES: dict[str, Callable[[], tuple[Figure, dict[str, Any]]]] = {
    "nodes": nodes,
    "synthetic": synthetic,
    "digits": digits,
    "partitions": partitions,
}


def main() -> None:
    """Make the figures that were named, or all."""
    for name in sys.argv[1:] or FIGURES:
        with matplotlib.rc_context(STYLE):
            figure, numbers = FIGURES[name]()
            _save(figure, HERE / f"{name}.png")
        write_text(HERE / f"{name}.json", json.dumps(numbers, indent=1) + "\n")
        print(f"made docs/figures/{name}.png and .json")


if __name__ == "__main__":
    main()
