"""The HTML pages: Jinja templates with autoescaping, each rendered to one file that needs no network."""

import json
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from gossamer._common.files import check_writable, write_text
from gossamer._common.formatting import ACCURACY, NONE, said, word
from gossamer.errors import InputError
from gossamer.experiments.experiment import Experiment
from gossamer.experiments.store import StoredRun
from gossamer.report import graph_drawing
from gossamer.report.charts import line_charts
from gossamer.report.comparison import NOT_SETTINGS, Comparison, ComparisonPanel, collect, epoch_note, tested_on
from gossamer.report.conclusion import CHANGES, RULE
from gossamer.report.plotly_charts import line_figure, partition_figure
from gossamer.report.style import BUILT_IN
from gossamer.report.tables import Table, beside_paper, matrix, ranking

if TYPE_CHECKING:
    from gossamer.experiments.paper.verdict import Verdict

_MOST_NAMES = 3
"""A title names up to this many methods."""


def render(template: str, **values: Any) -> str:
    """Render one of the templates in `templates/`. All text but `Markup` is escaped."""
    return _environment().get_template(template).render(values)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("gossamer.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    return environment


def check_report(path: Path) -> None:
    """Raise now, before any training, what `write_report` would raise afterwards."""
    plotly_script()
    check_writable(path)


def write_report(
    runs: Iterable[StoredRun] | Comparison,
    path: Path,
    *,
    title: str = "",
    command: str | None = None,
    verdict: "Verdict | None" = None,
    notes: Sequence[str] = (),
) -> Path:
    """Write the report as one HTML file that needs no network; returns its path.

    The page begins with what the figures show; without a `title` it is named after what was compared. `command` is
    what made the runs. With a `verdict` the page begins with the paper's numbers next to the measured
    ones, and `notes` below them.
    """
    write_text(path, comparison_page(collect(runs), title, command, verdict, notes))
    return path


def comparison_page(
    comparison: Comparison,
    title: str,
    command: str | None = None,
    verdict: "Verdict | None" = None,
    notes: Sequence[str] = (),
) -> str:
    """The report as HTML, plotly included."""
    entries = [entry for panel in comparison.panels for entry in panel.entries]
    found = {panel.name: panel.conclusion for panel in comparison.panels}
    return render(
        "comparison.html",
        title=title or _title(comparison),
        rule=f"{RULE} {CHANGES}" if len(found) > 1 else RULE,
        warnings=list(dict.fromkeys(c.warning for c in found.values() if c.warning)),
        lead=_lead(comparison),
        comparison=comparison,
        panels=[_view(comparison, panel) for panel in comparison.panels],
        looks={entry.title: comparison.looks[entry.method] for entry in entries},
        links={panel.name: number for number, panel in enumerate(comparison.panels)},
        matrix=matrix(comparison),
        runs=_all_runs(comparison),
        varied={key: ", ".join(said(value, word) for value in values) for key, values in comparison.varied.items()},
        shared={key: said(value, word) for key, value in comparison.shared.items()},
        versions={key: ", ".join(values) for key, values in comparison.environments.items()},
        own_methods=list(dict.fromkeys(entry.method for entry in entries if entry.method_name not in BUILT_IN)),
        toml=toml,
        command=command,
        verdict=verdict,
        beside_paper=beside_paper,
        paper_notes=[*notes, *verdict.warnings] if verdict else [],
        plotly=Markup(plotly_script()),
    )


def plotly_script() -> str:
    """plotly.js, from plotly's Python package."""
    try:
        from plotly.offline import get_plotlyjs
    except ImportError:
        raise InputError(
            "The report's charts need plotly, which is not installed; run: pip install 'gossamer[report]'."
        ) from None
    script: str = get_plotlyjs()
    return script


def toml(experiment: Experiment) -> str:
    """An experiment as the file that `gossamer run` reads."""
    return "\n".join(f"{key} = {json.dumps(value)}" for key, value in experiment.settings.items())


def _title(comparison: Comparison) -> str:
    """What was compared, and on what."""
    methods, shared = comparison.methods, comparison.shared
    names = f"{len(methods)} methods"
    if len(methods) <= _MOST_NAMES:
        names = " and ".join(filter(None, [", ".join(methods[:-1]), methods[-1]]))
    on = [str(shared[key]) for key in ("dataset", "partition") if key in shared]
    graph = f"{shared['topology']} of {shared['nodes']} nodes" if {"topology", "nodes"} <= shared.keys() else ""
    varied = [key.replace("_", " ") for key in comparison.varied if key not in (*NOT_SETTINGS, "evaluations")]
    by = f" by {', '.join(varied)}" if varied and len(comparison.panels) > 1 else ""
    return f"{names}{' on ' if on else ''}{', '.join(filter(None, [*on, graph]))}{by}"


def _lead(comparison: Comparison) -> str:
    shared = comparison.shared
    where = [str(shared[key]) for key in ("dataset", "model", "partition", "topology") if key in shared]
    nodes = [f"{shared['nodes']} nodes"] if "nodes" in shared else []
    panels = f" in {len(comparison.panels)} settings" if len(comparison.panels) > 1 else ""
    counted = f"{_count(comparison.methods, 'method')}{panels}, {_count(comparison.runs, 'run')}"
    return f"{counted}: {', '.join([*where, *nodes])}."


def _count(things: Sequence[object], name: str) -> str:
    return f"{len(things)} {name}{'' if len(things) == 1 else 's'}"


def _view(comparison: Comparison, panel: ComparisonPanel) -> dict[str, Any]:
    """What the template needs of a panel: table, charts and, where known, partition and graph."""
    charts = line_charts(panel)
    figures = {chart.key: line_figure(chart, comparison.looks) for chart in charts}
    view = {"panel": panel, "ranking": ranking(panel), "charts": charts, "figures": figures}
    partition, graph = (panel.about.get(key) for key in ("partition", "graph"))
    if partition:
        figures["partition"] = partition_figure(partition["counts"], partition["classes"])
    drawing = graph and Markup(graph_drawing.svg(graph["nodes"], graph["edges"]))
    return view | {
        "measured": _measured(panel),
        "epoch": epoch_note(panel),
        "partition": partition and _partition_caption(panel, partition),
        "graph": graph and _graph_caption(panel, graph),
        "drawing": drawing,
    }


def _measured(panel: ComparisonPanel) -> str:
    """What the figures of a panel's table are."""
    metric = panel.metric
    worst = "lowest" if metric.higher_is_better else "highest"
    direction = "" if metric == ACCURACY else f" ({metric.direction})"
    return (
        f"{metric.name[0].upper()}{metric.name[1:]}{direction} is the mean over the nodes, each with its own model, on "
        f"{tested_on(panel)}; ± is the standard deviation over the seeds. Worst node: the {worst} {metric.name} of any "
        f"node with any seed. Averaged model: the {metric.name} of the mean of all nodes' models."
    )


def _partition_caption(panel: ComparisonPanel, partition: dict[str, Any]) -> str:
    counts = partition["counts"]
    if len(counts[0]) == 1:
        return f"{partition['recipe']}: {sum(map(sum, counts)):,} samples on {len(counts)} nodes." + _seed_note(
            panel, "partition"
        )
    return (
        f"{partition['recipe'] or panel.settings['partition']}: {sum(map(sum, counts)):,} samples on {len(counts)} "
        f"nodes, one colour per class; mean label distance (0 = iid, towards 1 = nothing in common) "
        f"{_figure(partition['label_distance'], '.3f')}." + _seed_note(panel, "partition")
    )


def _graph_caption(panel: ComparisonPanel, graph: dict[str, Any]) -> str:
    period = f", {graph['period']} rounds until it repeats (all their edges are drawn)" if graph["period"] > 1 else ""
    return (
        f"{graph['name']}: {graph['nodes']} nodes, {len(graph['edges'])} edges, at most {graph['degree']} "
        f"neighbours{period}; p = {_figure(graph['p'], '.4g')}, spectral gap 1 − λ = "
        f"{_figure(graph['spectral_gap'], '.4g')}."
    ) + _seed_note(panel, "graph")


def _figure(value: float | None, form: str) -> str:
    return NONE if value is None else format(value, form)


def _seed_note(panel: ComparisonPanel, what: str) -> str:
    """A sentence if runs with other seeds have another graph or partition than the one drawn."""
    drawn = panel.about[what]
    same = all(run.about.get(what) == drawn for e in panel.entries if not e.own_settings for run in e.runs)
    return "" if same else f" This one is of seed {panel.about['experiment']['seed']}; every seed has its own."


def _all_runs(comparison: Comparison) -> Table:
    varied = [key for key in comparison.varied if key not in NOT_SETTINGS]
    rows = []
    for run in comparison.runs:
        values = run.settings
        row = run.rows[-1] if run.rows else {}
        shown = run.metric.shown(row[run.metric.name]) if row else NONE
        last = [shown, word(row.get("test_samples"))]
        told = [word(values[key]) for key in [*varied, "lr", "seed"]]
        rows.append([run.directory.name, run.label, *told, run.status, *last])
    title = comparison.metrics[0].title if len(comparison.metrics) == 1 else "metric"
    return Table(["run", "method", *varied, "step size", "seed", "status", title, "test samples"], rows)
