"""`gossamer show`: a graph, a partition, a method or a run, as text and as a drawing."""

import inspect
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from cyclopts import App

from gossamer._common.formatting import say
from gossamer.cli.options import Load, Whole
from gossamer.errors import GossamerError, InputError

if TYPE_CHECKING:
    from gossamer.methods import Method

show = App(name="show", help="Show a graph, a partition, a method or a run. Example: gossamer show topology ring")


@show.command
def topology(
    spec: str,
    *,
    nodes: Whole = 8,
    weights: str = "metropolis",
    seed: Whole = 0,
    plot: Path | None = None,
    json: bool = False,
) -> None:
    """Show a graph: its size, how fast it mixes, and which methods can use it.

    Example: gossamer show topology random-regular:degree=4 --nodes 16 --plot graph.png

    Parameters
    ----------
    spec
        The graph: ring, hypercube, random-regular:degree=4, one-peer-exponential, file:graph.txt, ...
    nodes
        Number of nodes.
    weights
        Mixing weights: metropolis, uniform, lazy or fastest.
    seed
        Seed of random graphs.
    plot
        File for a drawing (.png, .svg or .pdf).
    json
        Print JSON instead of a table.
    """
    from gossamer import methods
    from gossamer import topology as graphs
    from gossamer.cli.output import print_json, print_table
    from gossamer.topology.families import is_file

    graph = graphs.get(spec, None if is_file(spec) else nodes, weights=weights, seed=seed)
    refusals = {}
    for name in methods.BUILT_IN:
        try:
            methods.get(name).check(graph)
        except GossamerError as error:
            refusals[name] = str(error)
    facts = {
        "nodes": graph.n,
        "degree": graph.degree,
        "diameter": graph.diameter,
        "period": graph.period,
        "p": graph.p,
        "spectral gap": graph.spectral_gap,
    }
    if plot:
        from gossamer.report.figures import draw_topology

        draw_topology(graph, plot)
    if json:
        edges = graph.graph.edges.tolist()
        print_json({"name": graph.name, **facts, "edges": edges, "refused": refusals, "plot": plot and str(plot)})
        return
    print_table([graph.name, ""], [[k, f"{v:.4g}"] for k, v in facts.items()])
    say(f"methods: {', '.join(m for m in methods.BUILT_IN if m not in refusals)}")
    for sentence in refusals.values():
        say(f"not: {sentence}")
    if plot:
        say(f"drawing: {plot}")


@show.command
def partition(
    spec: str,
    *,
    dataset: str = "digits",
    nodes: Whole = 8,
    seed: Whole = 0,
    data_dir: Path | None = None,
    plot: Path | None = None,
    json: bool = False,
) -> None:
    """Show a partition: the samples of each class on each node, and how different the nodes are.

    Example: gossamer show partition dirichlet:alpha=0.1 --dataset fashion-mnist --plot partition.png

    Parameters
    ----------
    spec
        The partition: iid, k-class:k=4, dirichlet:alpha=0.1, shards:per_node=2.
    dataset
        digits, fashion-mnist, cifar-10, svhn or mnist.
    nodes
        Number of nodes.
    seed
        Seed of the draw.
    data_dir
        Directory in which to look for datasets first.
    plot
        File for a bar chart (.png, .svg or .pdf).
    json
        Print JSON instead of a table.
    """
    from gossamer.cli.output import print_json
    from gossamer.data import load
    from gossamer.data import partition as partitions

    data = load(dataset, data_dir)
    split = data.split(partitions.get(spec, nodes, seed)).partition
    if plot:
        split.plot(plot, data.classes)
    if json:
        distances = split.label_distances.tolist()
        counts = split.label_counts.tolist()
        print_json({"recipe": split.recipe, "classes": data.classes, "counts": counts, "label_distances": distances})
        return
    say(split)
    if plot:
        say(f"drawing: {plot}")


@show.command
def method(name: str = "", *, load: Load = (), json: bool = False) -> None:
    """Show a method: its formula, needs, cost and guarantees; without a name, list all methods.

    Example: gossamer show method momentum-tracking

    Parameters
    ----------
    name
        The method.
    load
        Python file that defines your own methods; may be repeated.
    json
        Print JSON instead of text.
    """
    from gossamer import methods
    from gossamer.cli.output import print_json, print_table
    from gossamer.experiments.user_files import load_python, loaded_names

    load_python(load)
    chosen = [methods.find(n) for n in ([name] if name else [*methods.BUILT_IN, *loaded_names(load)])]
    rows = [[m.name, m.facts.title, str(m.facts.sends), str(m.facts.needs), m.facts.citation] for m in chosen]
    head = ["name", "title", "sends", "needs", "citation"]
    if json:
        found = zip(chosen, rows, strict=True)
        print_json([{**dict(zip(head, row, strict=True)), "promises": _promises(m)} for m, row in found])
    elif name:
        if text := _in_words(chosen[0]):
            say(text, end="\n\n")
        print_table(["", ""], [list(pair) for pair in zip(head, rows[0], strict=True)], figures=False)
        promises = _promises(chosen[0])
        say("\npromises:" if promises else "\npromises: none")
        for promise in promises:
            say(f"  {promise}")
    else:
        print_table(head[:-1], [row[:-1] for row in rows], figures=False)


def _promises(method: "type[Method]") -> list[str]:
    """What the method promises, each as its label and what it means."""
    made = [text for name, text in method.facts.promises().items() if getattr(method.facts, name)]
    return [f"{label}: {meaning[0].lower()}{meaning[1:].rstrip('.')}" for label, meaning in made]


def _in_words(method: "type[Method]") -> str:
    """The docstring without its examples."""
    text = inspect.cleandoc(method.__doc__ or "")
    if text.startswith(f"{method.__name__}("):  # what dataclass writes if there is none
        return ""
    paragraphs = text.split("\n\n")
    return "\n\n".join(p for p in paragraphs if not p.lstrip().startswith(">>>"))


@show.command
def run(directory: Path, *more: Path, plot: Path | None = None, json: bool = False) -> None:
    """Show a run: its settings, how it ended, and its last figures.

    Example: gossamer show run runs/3ab16528be66933b --plot curve.png

    Parameters
    ----------
    directory
        The directory of the run.
    more
        Not for several runs, which gossamer report compares.
    plot
        File for its learning curve (.png, .svg or .pdf).
    json
        Print everything as JSON, including the figures of all evaluations.
    """
    from gossamer.cli.output import print_run
    from gossamer.experiments.store import StoredRun

    if more:
        places = shlex.join(map(str, [directory, *more]))
        raise InputError(
            f"gossamer show run shows one run; to compare several: gossamer report {places} -o report.html"
        )
    if not (directory / "run.json").exists():
        raise InputError(f"{directory} is not a run: it holds no run.json; give the directory of one run.")
    found = StoredRun(directory)
    found.check()
    if plot:
        from gossamer.report.figures import draw_run

        draw_run(found.rows, plot, found.label, found.metric)
    print_run(found, json)
    if plot and not json:
        say(f"drawing: {plot}")
