"""Tables of what was measured: for the figures of the documentation, on real data, and by the benchmarks."""

import json
import statistics
from pathlib import Path
from typing import Any

from method_blocks import table

from gossamer import methods
from gossamer._common.formatting import mean_std, word

ROOT = Path(__file__).parents[2]
FIGURES = ROOT / "docs" / "figures"
"""Written by docs/figures.py."""
RESULTS = ROOT / "results"
"""NAME/measured.json is written by results/publish.py."""
SCRIPTS, RECORDS = ROOT / "benchmarks", RESULTS / "benchmarks"
"""The benchmarks, and what `make bench` writes."""
UNITS = {"ratio": (1, ""), "s": (1, " s"), "ms": (1, " ms"), "share": (100, " %"), "GFLOP/s": (1, " GFLOP/s")}
"""The factor and the suffix with which a benchmark's value is shown."""


def measured(figure: str) -> str:
    """The numbers behind a figure of the documentation."""
    told = _read(FIGURES / f"{figure}.json")
    return {"nodes": _nodes, "synthetic": _quadratics, "digits": _digits, "partitions": _partitions}[figure](told)


def _nodes(told: dict[str, Any]) -> str:
    """How far from the common optimum the nodes of the first figure stop."""
    rows = [
        [m["title"], _number(m["largest_distance"]), _number(m["mean_point_distance"])]
        for m in told["methods"].values()
    ]
    head = ["method", "largest distance of a node from the common optimum", "distance of the mean point"]
    setting = f"(Step size {told['lr']}, β = {told['beta']}, {told['rounds']:,} rounds, exact gradients.)"
    return f"{table(head, rows)}\n\n{setting}"


def _quadratics(told: dict[str, Any]) -> str:
    """The levels at which the methods end on the paper's quadratics."""
    rows = [[m["title"], m["graph"], *(_number(level) for level in m["tail_means"])] for m in told["methods"].values()]
    head = ["method", "graph", *(f"ζ² = {zeta2:g}" for zeta2 in told["zeta2"])]
    setting = (
        f"Mean of |∇f(x̄)|² over the last quarter of {told['rounds']:,} rounds; {told['nodes']} nodes, "
        f"d = {told['dim']}, step size {told['lr']:g}, β = {told['beta']:g}, mean over {told['draws']} draws."
    )
    return f"{table(head, rows)}\n\n{setting}"


def _digits(told: dict[str, Any]) -> str:
    """Accuracies on the digits."""
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


def _partitions(told: dict[str, Any]) -> str:
    """How different the nodes of the partition figure are."""
    rows = [
        [f"`{spec}`", str(min(p["sizes"])), str(max(p["sizes"])), f"{p['label_distance']:.2f}"]
        for spec, p in told.items()
    ]
    return table(["partition", "smallest node", "largest node", "mean label distance"], rows)


def result(name: str) -> str:
    """An item in full: its commands, a table per panel beside the paper's figures, and how the rankings compare."""
    told = _read(RESULTS / name / "measured.json")
    commands = "\n".join(told["commands"])
    panels = [_panel(panel, name) for panel in told["panels"] if _is_measured(panel)]
    return "\n\n".join([f"```sh\n{commands}\n```", _effort(told), *panels])


def _is_measured(panel: dict[str, Any]) -> bool:
    """Whether any of its runs was made."""
    return any(line["mean"] is not None for line in panel["methods"])


def beside_the_paper(*names: str) -> str:
    """Items in one table: the paper's figure, ours and the difference, and how many clear pairs rank alike."""
    rows: dict[str, dict[str, list[str]]] = {}
    agreeing: dict[str, dict[str, list[str]]] = {}
    for told in [_read(RESULTS / name / "measured.json") for name in names]:
        for panel in filter(_is_measured, told["panels"]):
            for line in panel["methods"]:
                paper = mean_std(line["paper_mean"], line["paper_std"])
                difference = "" if line["mean"] is None else f" ({line['mean'] - line['paper_mean']:+.1f})"
                rows.setdefault(line["label"], {})[panel["title"]] = [paper, f"{_mean(line)}{difference}"]
            ranking = panel["ranking"]
            if ranking["clear_pairs"]:
                title = f"{told['title'].partition(':')[0]}: pairs that the paper tells apart, in its order"
                found = ["", f"{ranking['clear_agreeing']} of {ranking['clear_pairs']}"]
                agreeing.setdefault(title, {})[panel["title"]] = found
    panels = list(dict.fromkeys(title for cells in rows.values() for title in cells))
    head = ["method", *(word for title in panels for word in (f"{title}: paper", "ours (difference)"))]
    lines = [*rows.items(), *agreeing.items()]
    return table(head, [[label, *(word for t in panels for word in cells.get(t, ["", ""]))] for label, cells in lines])


def endings(name: str) -> str:
    """How the runs of an item end: the evaluation that is reported, and others that one could report."""
    told = _read(RESULTS / name / "measured.json")
    head = ["method", "last evaluation", "mean of the last five", "swing", "worst node", "averaged model", "step size"]
    parts = []
    for title in dict.fromkeys(ending["panel"] for ending in told["endings"]):
        rows = [
            [
                ending["label"],
                *(f"{100 * ending[key]:.1f}" for key in ("last", "last_five", "swing", "worst_node", "averaged")),
                f"{ending['lr']:g}",
            ]
            for ending in told["endings"]
            if ending["panel"] == title
        ]
        parts += [f"**{title}**", table(head, rows)]
    return "\n\n".join(parts)


def comparison(name: str) -> str:
    """What results/frontier.py compares: its commands, a table per panel with paired differences, and the figure."""
    told = _read(RESULTS / name / "measured.json")
    commands = "\n".join(told["commands"])
    parts = [f"```sh\n{commands}\n```"]
    panels: dict[str, list[list[str]]] = {}
    for row in sorted(told["cells"], key=lambda row: -(row["share"] or 0.0)):
        panels.setdefault(row["panel"], []).append(_compared(row))
    if all(row["panel"] == row["method"] for row in told["cells"]):  # a few lines each
        panels = {told["title"]: [line for lines in panels.values() for line in lines]}
    head = ["what", "bytes", "accuracy", "difference", "step size", "seeds"]
    for title, rows in panels.items():
        parts += [f"**{title}**", table(head, rows)]
    return "\n\n".join([*parts, f"![{told['title']}]({name}/{name}.png)"])


def _compared(row: dict[str, Any]) -> list[str]:
    """One line: the share of the base's bytes, and the mean paired difference with its 95 % interval, in points."""
    lost = row["topology"].rpartition("drop=")[2] if "drop=" in row["topology"] else ""
    label = f"{row['label']}, {float(lost):.0%} lost" if lost else row["label"]
    difference = "–" if row["difference"] is None else f"{100 * row['difference']:+.1f}"
    if row["interval"] is not None and row["share"] != 1:
        difference += f" ± {100 * row['interval']:.1f}"
    share = "–" if row["share"] is None else f"{row['share']:.3g}"
    shown = row["missing"] or mean_std(row["mean"], row["std"], scale=100)
    return [label, share, shown, difference, word(row["lr"]), str(row["seeds"])]


def overview(name: str) -> str:
    """An item in one table: a row per method, a column per panel."""
    told = _read(RESULTS / name / "measured.json")
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
    told = _read(RESULTS / "synthetic" / "measured.json")
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


def privacy() -> str:
    """Accuracy against epsilon: the sites' own models, and the averaged one."""
    told = _read(RESULTS / "privacy" / "measured.json")
    runs = told["runs"]
    epsilons = list(dict.fromkeys(run["epsilon"] for run in runs))
    rows = []
    for key in dict.fromkeys((run["dataset"], run["method"]) for run in runs):
        for title, figure in (("mean over the sites", "accuracy"), ("averaged model", "averaged")):
            cells = []
            for epsilon in epsilons:
                own = [
                    run["sites"] for run in runs if (run["dataset"], run["method"], run["epsilon"]) == (*key, epsilon)
                ]
                cells.append(_percent([statistics.mean(site[figure] for site in sites) for sites in own]))
            rows.append([key[0], methods.find(key[1]).facts.title, title, *cells])
    head = ["data", "method", "model", *("none" if e is None else f"ε = {e:g}" for e in epsilons)]
    settings = {run["dataset"]: run for run in runs}
    noises = {name: ", ".join(_noises(runs, name, epsilons)) for name in settings}
    lengths = "; ".join(
        f"{name}: {run['model']}, {run['rounds']} rounds, batches of {run['batch_size']} of some "
        f"{round(statistics.mean(s['examples'] for s in run['sites'])):,} examples, noise {noises[name]}, step sizes "
        f"{', '.join(f'{lr:g}' for lr in {r['epsilon']: r['lr'] for r in runs if r['dataset'] == name}.values())}"
        for name, run in settings.items()
    )
    seeds = len({run["seed"] for run in runs})
    setting = (
        f"Test accuracy in percent, mean ± standard deviation over {seeds} seeds: {told['nodes']} sites on a "
        f"{told['topology']}, {told['k']} classes each, δ = {told['delta']:g}, gradients clipped at {told['clip']:g}, "
        f"β = {told['momentum']:g}; {lengths}. All "
        f"{len(runs)} trainings took {told['seconds'] / 60:.0f} minutes."
    )
    return f"```sh\n{told['command']}\n```\n\n{table(head, rows)}\n\n{setting}"


def _noises(runs: list[dict[str, Any]], dataset: str, epsilons: list[float | None]) -> list[str]:
    """The noise multiplier for every epsilon, the mean over the sites."""
    chosen = [[r for r in runs if (r["dataset"], r["epsilon"]) == (dataset, e)] for e in epsilons if e is not None]
    return [f"{statistics.mean(site['noise'] for run in part for site in run['sites']):.2f}" for part in chosen]


def peers() -> str:
    """The same training with Decent-DP: a row per candidate, and the ratios of their steps."""
    record = _read(RECORDS / "peers.json")
    rows: dict[str, dict[str, float]] = {}
    for m in record["measurements"]:
        case, _, what = m["what"].rpartition(": ")
        rows.setdefault(case, {})[what] = m["value"]
    lines = []
    for case, told in rows.items():
        if not case:
            continue
        name, graph, step_size = case.split(", ")
        accuracy = mean_std(told["accuracy, mean over nodes"], told["its standard deviation over seeds"], scale=100)
        worst = f"{100 * told['accuracy of the worst node']:.1f}"
        lines.append([name, graph, step_size.split()[-1], accuracy, worst, f"{told['time of a step']:.1f} ms"])
    ratios = [f"{ratio:.2f} ({what.rpartition(', ')[2]})" for what, ratio in rows[""].items()]
    head = ["", "graph", "step size", "accuracy (%)", "worst node (%)", "a step takes"]
    return (
        f"```sh\n{record['command']}\n```\n\n{table(head, lines)}\n\nThe step of Momentum Tracking over that of "
        f"Decent-DP on the same graph, the median over runs that follow each other: {' and '.join(ratios)}."
    )


def wire() -> str:
    """Steps of a million parameters at 100 Mbit/s: measured, planned, and what was waited for."""
    rows: dict[str, dict[str, float]] = {}
    for m in _read(RECORDS / "overlap.json")["measurements"]:
        setting, _, rest = m["what"].partition(": ")
        if setting == "a million parameters":
            method, _, what = rest.rpartition(": ")
            rows.setdefault(method, {})[what] = m["value"]
    lines = []
    for method, told in rows.items():
        waited = [told[f"waiting for {whom}"] for whom in ("the wire", "neighbours that compute")]
        off = told["the plan is off by"]
        lines.append(
            [
                f"`{method}`",
                f"{told['a step']:.2f} s",
                *(f"{seconds:.3f} s" for seconds in waited),
                f"{100 * off:.0f} %",
            ]
        )
    head = ["method", "a step takes", "waiting for the wire", "for neighbours that compute", "the plan is off by"]
    return table(head, lines)


def benchmarks() -> str:
    """Every measurement that is recorded, and which benchmarks have no record.

    Times without a limit are left out: they tell more of the machine than of the code, and stay in the JSON.
    """
    names = {path.stem for path in [*SCRIPTS.glob("[a-z]*.py"), *RECORDS.glob("*.json")]}
    rows = [row for name in sorted(names) for row in _rows(name)]
    return table(["benchmark", "what", "measured", "limit", "met"], rows)


def _rows(name: str) -> list[list[str]]:
    record = RECORDS / f"{name}.json"
    if not record.exists():
        return [[f"`{name}`", "–", "not run", "–", "–"]]
    shown = (m for m in _read(record)["measurements"] if m["limit"] is not None or m["unit"] not in ("s", "ms"))
    return [[f"`{name}`", *_cells(m)] for m in shown]


def _cells(m: dict[str, Any]) -> list[str]:
    factor, unit = UNITS[m["unit"]]
    digits = 3 if m["unit"] == "ratio" else 1
    measured = f"{factor * m['value']:.{digits}f}{unit}"
    if m["limit"] is None:
        return [m["what"], measured, "–", "–"]
    limit = f"{'≤' if m['at_most'] else '≥'} {factor * m['limit']:g}{unit}"
    return [m["what"], measured, limit, "yes" if m["met"] else "**missed**"]


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
        return "not run"
    return mean_std(line["mean"], line["std"])


def _read(path: Path) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return value


def _number(value: float) -> str:
    return f"{value:.2g}" if 0.01 <= value < 1000 else f"{value:.1e}"


def _percent(values: list[float]) -> str:
    mean = f"{100 * statistics.mean(values):.1f}"
    return f"{mean} ± {100 * statistics.stdev(values):.1f}" if len(values) > 1 else mean
