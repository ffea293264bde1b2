"""What the methods declare about themselves, as Markdown."""

import dataclasses
import inspect

import torch
from plain_docstrings import is_example, paragraphs

from gossamer import methods, optim, topology
from gossamer.errors import GossamerError
from gossamer.methods import Method
from gossamer.network import Pending, SimulatedNetwork

PROMISES = methods.Facts.promises()
# One graph of each kind that makes a difference to some method.
KINDS = {
    "ring of 8": topology.ring(8),
    "lazy ring of 8": topology.ring(8, weights="lazy"),
    "hypercube of 8": topology.hypercube(8),
    "exponential of 8": topology.exponential(8),
    "chain of 8": topology.chain(8),
    "one-peer exponential": topology.one_peer_exponential(8),
    "random matchings": topology.random_matchings(8),
}


def built_in() -> list[type[Method]]:
    """The classes, in the order in which tables list them."""
    return [methods.find(name) for name in methods.BUILT_IN]


def table(head: list[str], rows: list[list[str]]) -> str:
    """A Markdown table."""
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *rows])


def overview() -> str:
    """All methods in one table, and what its columns mean."""
    head = ["method", "sends per round and edge", "remembers", "needs", *(label for label, _ in PROMISES.values())]
    rows = [
        [
            f"[{cls.facts.title}](methods/{cls.name}.md)",
            cls.facts.cost,
            _remembers(cls),
            str(cls.facts.needs),
            *("yes" if getattr(cls.facts, key) else "–" for key in PROMISES),
        ]
        for cls in built_in()
    ]
    legend = [f"- **{label}**: {meaning}" for label, meaning in PROMISES.values()]
    return "\n\n".join([table(head, rows), "\n".join(legend)])


def method(name: str) -> str:
    """One method: its formula as its docstring states it, and its facts."""
    cls = methods.find(name)
    parts = paragraphs(inspect.getdoc(cls) or "")
    told = "\n\n".join(part for part in parts if not is_example(part))
    facts = cls.facts
    promises = [meaning for key, (_, meaning) in PROMISES.items() if getattr(facts, key)]
    runs = [kind for kind, graph in KINDS.items() if _accepts(cls, graph)]
    each = " per round and edge"
    rows = [
        ["name", f"`{cls.name}`"],
        ["needs", str(facts.needs)],
        ["runs on", ", ".join(runs)],
        ["sends", facts.cost + ("" if facts.sends == "all-reduce" else " per edge" if facts.every > 1 else each)],
        ["remembers", f"{_remembers(cls)} beside the model and its gradient"],
        ["message travels during the next gradient", "yes" if facts.overlaps else "no"],
        ["hyper-parameters", _hyperparameters(cls)],
        ["source", facts.citation or "–"],
    ]
    promised = "\n".join(f"- {sentence}" for sentence in promises)
    return "\n\n".join(
        [
            f"```text\n{told}\n```",
            table(["fact", f"{facts.title}"], rows),
            f"It promises, and the conformance kit checks:\n\n{promised}" if promises else "It makes no promises.",
        ]
    )


def declarations(what: str) -> str:
    """The fields of `Facts` with their explanations: the "promises", or what is declared "besides" them."""
    chosen = [f for f in dataclasses.fields(methods.Facts) if (f.name in PROMISES) == (what == "promises")]
    return table(["field of `gs.Facts`", "means"], [[f"`{f.name}`", f.metadata["explanation"]] for f in chosen])


def compatibility() -> str:
    """Which method runs on which kind of graph, as the methods themselves say."""
    rows = [
        [
            f"[{cls.facts.title}](methods/{cls.name}.md)",
            *("yes" if _accepts(cls, graph) else "–" for graph in KINDS.values()),
        ]
        for cls in built_in()
    ]
    return table(["method", *KINDS], rows)


def optimizers() -> str:
    """The optimizer of every method and its arguments."""
    rows = []
    for cls in optim.ALL:
        arguments = [
            f"`{p.name}`" if p.default is p.empty else f"`{p.name}={p.default!r}`"
            for p in inspect.signature(cls).parameters.values()
            if p.kind != p.VAR_KEYWORD
        ]
        method_page = f"[{cls.method.facts.title}](methods/{cls.method.name}.md)"
        rows.append([f"`gossamer.optim.{cls.__name__}`", method_page, ", ".join(arguments)])
    return table(["optimizer", "method", "arguments"], rows)


def _accepts(cls: type[Method], graph: topology.Topology) -> bool:
    try:
        cls().check(graph)
    except GossamerError:
        return False
    return True


def _remembers(cls: type[Method]) -> str:
    """How many vectors of the model's size a node keeps, counted in the state on a graph of two neighbours."""
    graph = next(g for g in (topology.ring(5), topology.chain(5)) if _accepts(cls, g))
    x = torch.zeros(5, 7)
    state = cls().initial(x, SimulatedNetwork(graph, x.dtype))
    count = 0.0
    for field in dataclasses.fields(state):
        value = getattr(state, field.name)
        for vector in value.wait() if isinstance(value, Pending) else [value]:
            if isinstance(vector, torch.Tensor) and vector.shape[-1] == x.shape[-1]:
                count += len(vector) / len(x)
    if count != int(count):
        return "one vector per neighbour" + (f" and {int(count) - 1}" if count >= 2 else "")
    return {0: "nothing", 1: "1 vector"}.get(int(count), f"{int(count)} vectors")


def _hyperparameters(cls: type[Method]) -> str:
    made = cls().hyperparameters
    return ", ".join(f"`{name}={value!r}`" for name, value in made.items()) or "none"
