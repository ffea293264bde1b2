"""What a method declares about itself, as data.

The conformance kit checks what is declared here, errors quote it, and the documentation's tables are made of it.
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from gossamer.errors import InputError
from gossamer.topology import Topology

# D^2 is stable only above -1/3; the margin keeps rounding from deciding.
EIGENVALUE_MARGIN = 1e-6


@dataclass(frozen=True, kw_only=True)
class Needs:
    """What a method needs of the graph.

    >>> str(Needs(static=True))
    'static graph'
    """

    static: bool = False
    """The same weights in every round."""
    symmetric: bool = False
    """W_ij = W_ji."""
    tree: bool = False
    """A connected graph without cycles."""
    smallest_eigenvalue: float | None = None
    """Every eigenvalue of W lies above this."""

    def check(self, title: str, topology: Topology) -> None:
        """Raise a `GossamerError` that says why the method `title` cannot run on `topology`, and what can be done."""
        if self.static and not topology.is_static:
            raise InputError(
                f"{title} needs a graph that stays the same, because it diverges on one that changes, but "
                f"'{topology.name}' changes from round to round; use a static graph such as ring, or a method that "
                f"accepts schedules such as momentum-tracking."
            )
        if self.tree and not topology.is_tree:
            raise InputError(
                f"{title} needs a tree, because it relays sums along edges and a cycle would count nodes twice, but "
                f"'{topology.name}' has a cycle; use chain, star or balanced-tree."
            )
        if self.symmetric and not topology.is_symmetric:
            raise InputError(
                f"{title} needs symmetric weights, but in those of '{topology.name}' some W_ij differs from W_ji; "
                f"use an undirected graph such as ring."
            )
        bound = self.smallest_eigenvalue
        if bound is not None and topology.smallest_eigenvalue <= bound + EIGENVALUE_MARGIN:
            raise InputError(
                f"{title} needs every eigenvalue of the mixing matrix above {_fraction(bound)}, or it diverges, but "
                f"the smallest of '{topology.name}' is {topology.smallest_eigenvalue:.4f}; use lazy weights (I + W)/2: "
                f"weights='lazy', or topology.lazy()."
            )

    def __str__(self) -> str:
        parts = ["static graph"] if self.static and not self.tree else []
        parts += ["static tree"] if self.tree else []
        parts += ["symmetric weights"] if self.symmetric else []
        if self.smallest_eigenvalue is not None:
            parts.append(f"smallest eigenvalue above {_fraction(self.smallest_eigenvalue)}")
        return ", ".join(parts) or "any doubly stochastic schedule"


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What a method is, costs, needs and promises. Every promise is checked by `gossamer.testing.check_method`.

    >>> Facts(title="DSGD", sends=1).cost
    '1 vector'
    """

    title: str
    """The name as papers write it."""
    citation: str = ""
    """Where the method comes from."""
    sends: int | Literal["all-reduce"] = 1
    """Vectors sent over each edge in a round."""
    starts_with_all_reduce: bool = False
    """The first round takes one all-reduce besides."""
    needs: Needs = Needs()
    """What it asks of the graph."""
    exact: bool = False
    """With full gradients every node reaches the common optimum, however different the nodes are (static W)."""
    exact_on_schedules: bool = False
    """The same on graphs that change over time."""
    preserves_mean: bool = False
    """The mean of x over the nodes moves as SGD with momentum on the mean gradient: xbar <- xbar - eta ubar."""
    equals_sgd_alone: bool = False
    """One node, or any number of identical ones, follows torch.optim.SGD with the same momentum."""
    tracks: bool = False
    """The correction c_i, shown by `Method.correction`, has mean zero in every round."""
    overlaps: bool = False
    """Its message leaves when a step ends and is needed only when the next begins: it travels during the gradient."""

    @property
    def cost(self) -> str:
        """What crosses an edge in one round, in words."""
        if self.sends == "all-reduce":
            return "one all-reduce"
        return f"{self.sends} vector{'' if self.sends == 1 else 's'}"


def _fraction(value: float) -> str:
    """-1/3 rather than -0.3333, which a reader cannot tell from an eigenvalue next to it."""
    return str(Fraction(value).limit_denominator(1000))
