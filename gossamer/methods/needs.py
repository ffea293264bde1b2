"""What a method needs of the graph, and the sentence for a graph that lacks it."""

import dataclasses
from dataclasses import field
from fractions import Fraction
from typing import Any

from gossamer.errors import InputError
from gossamer.topology import Topology

# D^2 is stable only above -1/3; the margin keeps rounding from deciding.
EIGENVALUE_MARGIN = 1e-6


def _need(default: bool | None, label: str, explanation: str, otherwise: str, remedy: str) -> Any:
    """A field of `Needs`: what it asks for, briefly and in full; what a graph does without it; what to do then."""
    metadata = {"label": label, "explanation": explanation, "otherwise": otherwise, "remedy": remedy}
    return field(default=default, metadata=metadata)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Needs:
    """What a method needs of the graph.

    >>> str(Needs(static=True))
    'static graph'
    """

    static: bool = _need(
        False,
        "static graph",
        "a graph that stays the same, because it diverges on one that changes",
        "'{name}' changes from round to round",
        "use a static graph such as ring, or a method that accepts schedules such as momentum-tracking",
    )
    tree: bool = _need(
        False,
        "static tree",
        "a tree, because it relays sums along edges and a cycle would count nodes twice",
        "'{name}' has a cycle",
        "use chain, star or balanced-tree",
    )
    symmetric: bool = _need(
        False,
        "symmetric weights",
        "symmetric weights",
        "in those of '{name}' some W_ij differs from W_ji",
        "use an undirected graph such as ring",
    )
    smallest_eigenvalue: float | None = _need(
        None,
        "smallest eigenvalue above {bound}",
        "every eigenvalue of the mixing matrix above {bound}, or it diverges",
        "the smallest of '{name}' is {smallest:.4f}",
        "use lazy weights (I + W)/2: weights='lazy', or topology.lazy()",
    )

    def check(self, title: str, topology: Topology) -> None:
        """Raise an `InputError` that says why the method `title` cannot run on `topology`, and what can be done."""
        if self.static and not topology.is_static:
            raise self._lacking("static", title, topology)
        if self.tree and not topology.is_tree:
            raise self._lacking("tree", title, topology)
        if self.symmetric and not topology.is_symmetric:
            raise self._lacking("symmetric", title, topology)
        bound = self.smallest_eigenvalue
        if bound is not None and (smallest := topology.smallest_eigenvalue) <= bound + EIGENVALUE_MARGIN:
            raise self._lacking("smallest_eigenvalue", title, topology, smallest)

    def _lacking(self, need: str, title: str, topology: Topology, smallest: float = 0.0) -> InputError:
        text = dict(self.__dataclass_fields__[need].metadata)
        sentence = f"{{title}} needs {text['explanation']}, but {text['otherwise']}; {text['remedy']}."
        return InputError(sentence.format(title=title, name=topology.name, bound=self._bound, smallest=smallest))

    @property
    def _bound(self) -> str:
        """-1/3 rather than -0.3333, which a reader cannot tell from an eigenvalue next to it."""
        return str(Fraction(self.smallest_eigenvalue or 0.0).limit_denominator(1000))

    def __str__(self) -> str:
        asked = [f for f in dataclasses.fields(self) if getattr(self, f.name) not in (False, None)]
        labels = [f.metadata["label"] for f in asked if not (f.name == "static" and self.tree)]
        return ", ".join(labels).format(bound=self._bound) or "any doubly stochastic schedule"
