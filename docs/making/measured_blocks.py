"""Tables of what was measured for the figures, from the JSON that figures.py wrote."""

import json
import statistics
from pathlib import Path
from typing import Any

from method_blocks import table

FIGURES = Path(__file__).parents[1] / "figures"


def measured(what: str) -> str:
    """The table called `what`."""
    tables = {"nodes": nodes, "synthetic": synthetic, "digits": digits, "partitions": partitions}
    return tables[what]()


def nodes() -> str:
    """How far from the common optimum the nodes of the first figure stop."""
    told = _read("nodes")
    rows = [
        [m["title"], _number(m["largest_distance"]), _number(m["mean_point_distance"])]
        for m in told["methods"].values()
    ]
    head = ["method", "largest distance of a node from the common optimum", "distance of the mean point"]
    setting = f"(Step size {told['lr']}, β = {told['beta']}, {told['rounds']:,} rounds, exact gradients.)"
    return f"{table(head, rows)}\n\n{setting}"


def synthetic() -> str:
    """The levels at which the methods end on the paper's quadratics."""
    told = _read("synthetic")
    rows = [[m["title"], m["graph"], *(_number(level) for level in m["tail_means"])] for m in told["methods"].values()]
    head = ["method", "graph", *(f"ζ² = {zeta2:g}" for zeta2 in told["zeta2"])]
    setting = (
        f"Mean of |∇f(x̄)|² over the last quarter of {told['rounds']:,} rounds; {told['nodes']} nodes, "
        f"d = {told['dim']}, step size {told['lr']:g}, β = {told['beta']:g}, mean over {told['draws']} draws."
    )
    return f"{table(head, rows)}\n\n{setting}"


def digits() -> str:
    """Accuracies on the digits."""
    told = _read("digits")
    equal, different = "iid", "k-class:k=2"
    rows = []
    for method in told["methods"].values():
        cells = method["partitions"]
        rows.append(
            [
                method["title"],
                method["graph"],
                _percent(cells[equal]["accuracy"]),
                _percent(cells[different]["accuracy"]),
                _percent(cells[different]["accuracy_min"]),
                _percent(cells[different]["averaged_accuracy"]),
                f"{method['lr']:g}",
            ]
        )
    head = ["method", "graph", "all classes", "2 classes", "its worst node", "its averaged model", "step size"]
    tried = {kind: " and ".join(f"{lr:g}" for lr in sizes) for kind, sizes in told["step_sizes"].items()}
    setting = (
        f"Test accuracy in percent after {told['epochs']} epochs: {told['nodes']} nodes, the digits, a small CNN, "
        f"batches of {told['batch_size']}; with 2 classes per node mean ± standard deviation over "
        f"{len(told['seeds'][different])} seeds, with all classes one seed. Chosen among the step sizes "
        f"{tried['with']} with momentum and {tried['without']} without (β = 0.9 makes steps ten times as long in "
        f"effect), by validation accuracy with 2 classes."
    )
    return f"{table(head, rows)}\n\n{setting}"


def partitions() -> str:
    """How different the nodes of the partition figure are."""
    rows = [
        [f"`{spec}`", str(min(p["sizes"])), str(max(p["sizes"])), f"{p['label_distance']:.2f}"]
        for spec, p in _read("partitions").items()
    ]
    return table(["partition", "smallest node", "largest node", "mean label distance"], rows)


def _read(name: str) -> dict[str, Any]:
    value: dict[str, Any] = json.loads((FIGURES / f"{name}.json").read_text(encoding="utf-8"))
    return value


def _number(value: float) -> str:
    return f"{value:.2g}" if 0.01 <= value < 1000 else f"{value:.1e}"


def _percent(values: list[float]) -> str:
    mean = f"{100 * statistics.mean(values):.1f}"
    return f"{mean} ± {100 * statistics.stdev(values):.1f}" if len(values) > 1 else mean
