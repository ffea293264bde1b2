"""The report's page, section by section."""

import json
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from gossamer._common.formatting import NONE, percent, word
from gossamer.errors import InputError
from gossamer.experiments.experiment import Experiment
from gossamer.report import graph_drawing
from gossamer.report.charts import Figure, figure, partition_figure
from gossamer.report.comparison import NOT_SETTINGS, Comparison, Panel
from gossamer.report.line_charts import line_charts
from gossamer.report.page import code, heading, page, paragraph
from gossamer.report.style import BUILT_IN, MARKER_PATHS, Look
from gossamer.report.tables import Table, matrix, ranking

_HERE = Path(__file__).parent


def comparison_page(comparison: Comparison, title: str, command: str | None = None, opening: Sequence[str] = ()) -> str:
    """The whole page, with plotly inside: it needs no network. `opening` are sections of HTML to begin with."""
    several = len(comparison.panels) > 1
    sections = [
        *opening,
        _what_was_compared(comparison),
        *([heading("All results"), _matrix(comparison)] if several else []),
        _tools(comparison),
        *(_panel(comparison, number) for number in range(len(comparison.panels))),
        _configuration(comparison),
        _reproduce(comparison, command),
        _all_runs(comparison),
        "<noscript><p>The charts need JavaScript; the tables are complete without it.</p></noscript>",
        f"<script>{plotly_script()}</script>",
        f"<script>{(_HERE / 'comparison_page.js').read_text(encoding='utf-8')}</script>",
    ]
    style = (_HERE / "comparison_page.css").read_text(encoding="utf-8")
    return page(title, _lead(comparison), sections, style)


def plotly_script() -> str:
    """The browser's half of plotly, as its Python package brings it."""
    try:
        from plotly.offline import get_plotlyjs
    except ImportError:
        raise InputError(
            "The report's charts need plotly, which is not installed; run: pip install 'gossamer[report]'."
        ) from None
    script: str = get_plotlyjs()
    return script


def _lead(comparison: Comparison) -> str:
    methods, panels, runs = len(comparison.methods), len(comparison.panels), len(comparison.runs)
    shared = comparison.shared
    where = [str(shared[key]) for key in ("dataset", "model", "partition", "topology") if key in shared]
    nodes = f"{shared['nodes']} nodes" if "nodes" in shared else ""
    return (
        f"{methods} {'method' if methods == 1 else 'methods'}"
        + (f" in {panels} settings" if panels > 1 else "")
        + f", {runs} {'run' if runs == 1 else 'runs'}: "
        + ", ".join([*where, *([nodes] if nodes else [])])
        + "."
    )


def _what_was_compared(comparison: Comparison) -> str:
    varied = {key: ", ".join(word(v) for v in values) for key, values in comparison.varied.items()}
    return (heading("What was compared") + _facts(varied) if varied else "") + _notes(comparison.notes)


def _notes(notes: Sequence[str]) -> str:
    return '<ul class="notes">' + "".join(f"<li>{escape(n)}</li>" for n in notes) + "</ul>" if notes else ""


def _matrix(comparison: Comparison) -> str:
    dressed = {
        p.name: f'<a href="#results" data-panel="panel-{k}">{escape(p.name)}</a>'
        for k, p in enumerate(comparison.panels)
    }
    for entry in (e for p in comparison.panels for e in p.entries):
        dressed[entry.title] = _swatch(comparison.looks[entry.method]) + escape(entry.title)
    note = "Test accuracy in percent, mean ± standard deviation over the seeds; the best of each setting in bold."
    return _table(matrix(comparison), dressed) + paragraph(note, note=True)


def _tools(comparison: Comparison) -> str:
    """The panel's selector and one checkbox per method."""
    options = "".join(f'<option value="panel-{k}">{escape(p.name)}</option>' for k, p in enumerate(comparison.panels))
    select = f'<label>Setting <select id="panel">{options}</select></label>' if len(comparison.panels) > 1 else ""
    boxes = "".join(
        f'<label><input type="checkbox" checked{_of_method(name)}>{_swatch(look)}{escape(name)}</label>'
        for name, look in comparison.looks.items()
    )
    buttons = '<button type="button" data-show="all">all</button><button type="button" data-show="none">none</button>'
    return f'{heading("Results")}<div class="tools" id="results">{select}{boxes}{buttons}</div>'


def _panel(comparison: Comparison, number: int) -> str:
    panel = comparison.panels[number]
    dressed = {e.title: _swatch(comparison.looks[e.method]) + escape(e.title) for e in panel.entries}
    charts = line_charts(panel)
    figures: dict[str, Figure] = {chart.key: figure(chart, comparison.looks) for chart in charts}
    drawn = [_plot(chart.key, chart.title, chart.caption) for chart in charts]
    about = panel.about
    if "partition" in about:
        figures["partition"] = partition_figure(about["partition"]["counts"], about["partition"]["classes"])
        drawn.append(_plot("partition", "Who holds what", _partition_caption(panel)))
    if "graph" in about:
        drawn.append(_graph(panel))
    title = f"<h3>{escape(panel.name)}</h3>" if len(comparison.panels) > 1 else ""
    note = (
        "Accuracy is the mean over the nodes, each with its own model, on the common test set; ± is the standard "
        "deviation over the seeds. Worst node: the lowest accuracy of any node with any seed. Averaged model: the "
        "accuracy of the mean of all nodes' models. Time: of the training rounds, on a machine that may have been "
        "busier at one run than at another."
    )
    if any(entry.cell.at_edge for entry in panel.entries):
        note += " *: at an end of the step sizes tried."
    return (
        f'<section class="panel" id="panel-{number}"{" hidden" if number else ""}>{title}'
        f"{_table(ranking(panel), dressed, [e.method for e in panel.entries])}{paragraph(note, note=True)}"
        f"{_notes(panel.notes)}"
        f'<div class="charts">{"".join(drawn)}</div>'
        f'<script type="application/json" id="figures-panel-{number}">{_json(figures)}</script></section>'
    )


def _plot(key: str, title: str, caption: str) -> str:
    return (
        f"<figure><figcaption><b>{escape(title)}</b><span>{escape(caption)}</span></figcaption>"
        f'<div class="plot" data-chart="{key}" role="img" aria-label="{escape(f"{title}. {caption}")}"></div></figure>'
    )


def _partition_caption(panel: Panel) -> str:
    partition = panel.about["partition"]
    counts = partition["counts"]
    return (
        f"{partition['recipe'] or panel.settings['partition']}: {sum(map(sum, counts)):,} samples on {len(counts)} "
        f"nodes, one colour per class; mean label distance (0 = iid, towards 1 = nothing in common) "
        f"{partition['label_distance']:.3f}." + _seed_note(panel, "partition")
    )


def _graph(panel: Panel) -> str:
    graph = panel.about["graph"]
    drawing = graph_drawing.svg(graph["nodes"], graph["edges"], escape(f"The graph {graph['name']}"))
    period = f", {graph['period']} rounds until it repeats (all their edges are drawn)" if graph["period"] > 1 else ""
    caption = (
        f"{graph['name']}: {graph['nodes']} nodes, {len(graph['edges'])} edges, at most {graph['degree']} "
        f"neighbours{period}; p = {graph['p']:.4g}, spectral gap 1 − λ = {graph['spectral_gap']:.4g}."
    ) + _seed_note(panel, "graph")
    drawing = drawing or "<p>Too many edges to draw.</p>"
    return f"<figure><figcaption><b>Who talks to whom</b><span>{escape(caption)}</span></figcaption>{drawing}</figure>"


def _seed_note(panel: Panel, what: str) -> str:
    """Whether the runs of other seeds have another graph or partition than the one drawn."""
    drawn = panel.about[what]
    same = all(run.about.get(what) == drawn for e in panel.entries if not e.own_settings for run in e.runs)
    return "" if same else f" Drawn is that of seed {panel.about['experiment']['seed']}; other seeds draw their own."


def _configuration(comparison: Comparison) -> str:
    shared = {key: word(value) for key, value in comparison.shared.items()}
    versions = {key: ", ".join(values) for key, values in comparison.environments.items()}
    return (
        f'{heading("Configuration and versions")}<div class="columns"><div><h3>Shared by all runs</h3>{_facts(shared)}'
        f"</div><div><h3>Made with</h3>{_facts(versions)}</div></div>"
    )


def _reproduce(comparison: Comparison, command: str | None) -> str:
    pieces = [heading("Reproduce")]
    if command:
        pieces += [paragraph("The command that made these runs:"), code(command)]
    pieces.append(
        paragraph(
            ("Any" if command else "Every")
            + " run can be made again on its own: save its lines as experiment.toml, set the seed, and start it with"
        )
    )
    pieces.append(code("gossamer run experiment.toml"))
    entries = [entry for panel in comparison.panels for entry in panel.entries]
    own = dict.fromkeys(entry.method for entry in entries if entry.method_name not in BUILT_IN)
    if own:
        which = "the one in the command above" if command and "--load" in command else "the Python file that defines it"
        pieces.append(paragraph(f"For {', '.join(own)} add --load FILE: {which}."))
    for panel in comparison.panels:
        texts = []
        for entry in panel.entries:
            seeds = ", ".join(str(run.experiment.seed) for run in entry.runs) or str(entry.cell.experiment.seed)
            texts.append(code(f"# {entry.title}; seeds {seeds}\n{toml(entry.cell.experiment)}"))
        summary = panel.name if len(comparison.panels) > 1 else "The settings of every method"
        pieces.append(f"<details><summary>{escape(summary)}</summary>{''.join(texts)}</details>")
    return "\n".join(pieces)


def _all_runs(comparison: Comparison) -> str:
    varied = [key for key in comparison.varied if key not in NOT_SETTINGS]
    head = ["run", "method", *varied, "step size", "seed", "status", "accuracy (%)"]
    rows = []
    for run in comparison.runs:
        values = run.experiment.settings
        last = percent(run.rows[-1]["accuracy"]) if run.rows else NONE
        told = [word(values[key]) for key in [*varied, "lr", "seed"]]
        rows.append([run.directory.name, run.label, *told, run.status, last])
    body = _table(Table(head, rows))
    title = f"All {len(rows)} runs" if len(rows) > 1 else "The run"
    return f"<details><summary>{title}</summary>{body}</details>"


def toml(experiment: Experiment) -> str:
    """An experiment as the file that `gossamer run` reads."""
    return "\n".join(f"{key} = {json.dumps(value)}" for key, value in experiment.settings.items())


def _table(table: Table, dressed: Mapping[str, str] | None = None, methods: Sequence[str] = ()) -> str:
    """A table. `dressed` is the HTML of words that are more than words; `methods` names every row's method."""
    dressed = dressed or {}
    text = ["text" if title in ("run", "method", "setting", "status") else "" for title in table.head]
    top = "".join(
        f'<th scope="col" class="{kind}">{dressed.get(title, escape(title))}</th>'
        for kind, title in zip(text, table.head, strict=True)
    )
    rows = []
    for r, row in enumerate(table.rows):
        cells = (
            f'<td class="{text[c]}{" best" if (r, c) in table.best else ""}">{dressed.get(value, escape(value))}</td>'
            for c, value in enumerate(row)
        )
        rows.append(f"<tr{_of_method(methods[r]) if methods else ''}>{''.join(cells)}</tr>")
    body = "\n".join(rows)
    inner = f"<thead><tr>{top}</tr></thead>\n<tbody>{body}</tbody>"
    return f'<div class="scroll" tabindex="0" role="region" aria-label="table"><table>{inner}</table></div>'


def _of_method(name: str) -> str:
    return f' data-method="{escape(name)}"'


def _swatch(look: Look) -> str:
    dashes = {"solid": "", "dash": "7 4", "dot": "2 3", "dashdot": "7 3 2 3"}[look.dash]
    return (
        f'<svg class="swatch" viewBox="0 0 30 12" aria-hidden="true"><line x1="1" x2="29" y1="6" y2="6" '
        f'stroke="{look.colour}" stroke-width="{look.width + 0.7:.1f}" stroke-dasharray="{dashes}"/>'
        f'<path d="{MARKER_PATHS[look.marker]}" transform="translate(15 6)" fill="{look.colour}"/></svg>'
    )


def _facts(values: Mapping[str, str]) -> str:
    names = {"lr": "step size", "node_weight": "weight of a node"}
    lines = (f"<dt>{escape(names.get(k, k.replace('_', ' ')))}</dt><dd>{escape(v)}</dd>" for k, v in values.items())
    return f'<dl class="facts">{"".join(lines)}</dl>'


def _json(value: Any) -> str:
    """JSON that may stand in a page: no `</script>` can occur in it."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
