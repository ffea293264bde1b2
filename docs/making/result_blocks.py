"""What was measured on real data, from results/NAME/measured.json (written by results/publish.py)."""

import json
from pathlib import Path
from typing import Any

from method_blocks import table

from gossamer._common.formatting import mean_std, word

RESULTS = Path(__file__).parents[2] / "results"
NOT_RUN = "not run"


def result(name: str) -> str:
    """An item in full: its commands, a table per panel beside the paper's figures, and how the rankings compare."""
    told = read(name)
    commands = "\n".join(told["commands"])
    return "\n\n".join([f"```sh\n{commands}\n```", _effort(told), *(_panel(panel, name) for panel in told["panels"])])


def overview(name: str) -> str:
    """An item in one table: a row per method, a column per panel."""
    told = read(name)
    panels = told["panels"]
    rows: dict[str, list[str]] = {}
    for panel in panels:
        for line in panel["methods"]:
            rows.setdefault(line["label"], []).append(_mean(line))
    return (
        table(["method", *(panel["title"] for panel in panels)], [[label, *cells] for label, cells in rows.items()])
        + f"\n\nTest accuracy in percent after {told['epochs']:g} epochs (mean ± standard deviation over the seeds)."
    )


def synthetic() -> str:
    """The levels of the synthetic experiment."""
    told = read("synthetic")
    rows: dict[str, list[str]] = {}
    for cell in told["cells"]:
        rows.setdefault(cell["method"], [cell["title"], cell["topology"]]).append(f"{cell['tail_mean']:.1e}")
    largest = max(told["config"]["zeta2"])
    stalls = {c["method"]: c["stall"] for c in told["cells"] if c["zeta2"] == largest}
    lines = [[*cells, f"{stalls[method]:.1e}" if stalls[method] else "–"] for method, cells in rows.items()]
    head = ["method", "graph", *(f"ζ² = {z:g}" for z in told["config"]["zeta2"]), f"closed form, ζ² = {largest:g}"]
    seconds = sum(cell["seconds"] for cell in told["cells"])
    setting = told["config"]
    draws = "one draw" if setting["draws"] == 1 else f"mean over {setting['draws']} draws"
    return (
        f"```sh\n{told['command']}\n```\n\nMean of |∇f(x̄)|² over the last quarter of {setting['rounds']:,} rounds; "
        f"{setting['nodes']} nodes, d = {setting['dim']}, step size {setting['lr']:g}, β = {setting['beta']:g}, "
        f"{draws}, {seconds:.0f} s in all.\n\n{table(head, lines)}"
    )


def read(name: str) -> dict[str, Any]:
    """What was published."""
    value: dict[str, Any] = json.loads((RESULTS / name / "measured.json").read_text(encoding="utf-8"))
    return value


def _effort(told: dict[str, Any]) -> str:
    seconds = told["seconds"]
    if seconds is None:
        return "Not run yet."
    return (
        f"{told['epochs']:g} epochs. Runs made: {told['runs']}; training time of a run {seconds['median']} s in the "
        f"median, {seconds['longest']} s at most."
    )


def _panel(panel: dict[str, Any], name: str) -> str:
    rows = [
        [
            line["label"],
            _mean(line),
            mean_std(line["paper_mean"], line["paper_std"]),
            word(line["lr"]),
            str(line["seeds"]),
        ]
        for line in panel["methods"]
    ]
    parts = [f"**{panel['title']}**", table(["method", "measured", "paper", "step size", "seeds"], rows)]
    if panel["ranking"]["pairs"]:
        sentence = panel["ranking"]["sentence"]
        parts.append(f"{sentence[0].upper()}{sentence[1:]}.")
    picture = f"{name}/{panel['title'].replace(', k = ', '-k')}.png"
    if (RESULTS / picture).exists():
        parts.append(f"![Test accuracy over the epochs, {panel['title']}]({picture})")
    return "\n\n".join(parts)


def _mean(line: dict[str, Any]) -> str:
    if line["diverged"]:
        return "diverged"
    if line["mean"] is None:
        return NOT_RUN
    return mean_std(line["mean"], line["std"])
