"""Topologies by name, as a command line or a configuration file gives them."""

import inspect
from collections.abc import Callable
from typing import Any

from gossamer._common import specs
from gossamer.errors import InputError, unknown
from gossamer.topology import families, schedules
from gossamer.topology.graph import Graph
from gossamer.topology.sources import from_file, from_matrix_file
from gossamer.topology.topology import Topology
from gossamer.topology.weights import WEIGHTS

FAMILIES: dict[str, Callable[..., Topology]] = {
    "ring": families.ring,
    "chain": families.chain,
    "star": families.star,
    "complete": families.complete,
    "grid": families.grid,
    "torus": families.torus,
    "hypercube": families.hypercube,
    "exponential": families.exponential,
    "balanced-tree": families.balanced_tree,
    "random-regular": families.random_regular,
    "erdos-renyi": families.erdos_renyi,
    "small-world": families.small_world,
}
SCHEDULES: dict[str, Callable[..., Topology]] = {
    "one-peer-exponential": schedules.one_peer_exponential,
    "random-matchings": schedules.random_matchings,
}


def names() -> tuple[str, ...]:
    """The names that `get` knows, besides file:PATH and matrix:PATH.

    >>> "ring" in names(), "one-peer-exponential" in names()
    (True, True)
    """
    return (*FAMILIES, *SCHEDULES)


def get(spec: str | Topology, n: int | None = None, weights: str = "metropolis", seed: int = 0) -> Topology:
    """The topology that `spec` describes, on n nodes.

    `spec` is a name, with parameters after a colon: "ring", "random-regular:degree=4", "grid:rows=2",
    "erdos-renyi:probability=0.3", "random-matchings:period=50,seed=3", "one-peer-exponential"; or a file:
    "file:graph.txt" (edge list), "matrix:weights.csv" (your own W). `seed` serves the random ones unless the
    parameters name another. A Topology is returned as it is. Files and topologies bring their own number of nodes:
    n may be left out, and is checked otherwise.

    >>> get("random-regular:degree=4", 16)
    Topology('random-regular', n=16, degree=4, period=1)
    """
    if weights not in WEIGHTS:
        raise unknown("kind of weights", str(weights), WEIGHTS)
    if isinstance(spec, Topology):
        return _of_size(spec, spec.name, n)
    if not isinstance(spec, str):
        raise InputError(f"A topology is given by its name or as a Topology, not as {type(spec).__name__}.")
    name, rest = specs.split(spec)
    if name == "file":
        return _of_size(from_file(_path(name, rest), weights), spec, n)
    if name == "matrix":
        return _reweighted(_of_size(from_matrix_file(_path(name, rest)), spec, n), weights)
    build, parameters = _described(name, rest)
    if n is None:
        raise InputError(f"Say how many nodes the topology '{name}' should have.")
    if "seed" in inspect.signature(build).parameters:
        parameters.setdefault("seed", seed)
    if name in FAMILIES:
        return build(n, weights=weights, **parameters)
    return _reweighted(build(n, **parameters), weights)


def resolve(given: str | Topology, nodes: int, *, one_node_needs_none: bool = False) -> Topology:
    """The topology meant by an object or, for so many nodes, by a name.

    With `one_node_needs_none`, one node gets a graph without edges whatever name is given, so that a script for many
    nodes runs in one process too; a name that does not exist is refused all the same.

    >>> resolve("ring", 8), resolve("random-regular:degree=4", 1, one_node_needs_none=True)
    (Topology('ring', n=8, degree=2, period=1), Topology('complete', n=1, degree=0, period=1))
    """
    if isinstance(given, Topology):
        return given
    if isinstance(given, Graph):
        raise InputError(
            "A Graph says who talks to whom but not with which weights; give gossamer.topology.on_graph('mine', graph)."
        )
    if not isinstance(given, str):
        raise InputError(
            f"The graph of a run is a gossamer.topology.Topology or a name such as 'ring', not {given!r}; "
            f"gossamer.topology.from_networkx, from_edges and from_matrix make one of your own."
        )
    if nodes == 1 and one_node_needs_none:
        name, rest = specs.split(given)
        if name in ("file", "matrix"):
            get(given)
        else:
            _described(name, rest)
        return families.complete(1)
    return get(given, nodes)


def _described(name: str, rest: str) -> tuple[Callable[..., Topology], dict[str, Any]]:
    """The function that makes the topology `name`, and its parameters."""
    if name not in names():
        raise unknown("topology", name, [*names(), "file:PATH", "matrix:PATH"])
    build = FAMILIES.get(name) or SCHEDULES[name]
    return build, dict(specs.parameters("topology", name, build, rest, given=("n", "weights")))


def _path(name: str, path: str) -> str:
    if not path:
        raise InputError(f"Give the file after the colon, as in '{name}:PATH'.")
    return path


def _of_size(topology: Topology, name: str, n: int | None) -> Topology:
    if n is not None and n != topology.n:
        raise InputError(f"The topology '{name}' has {topology.n} nodes, but {n} were asked for; make them agree.")
    return topology


def _reweighted(topology: Topology, weights: str) -> Topology:
    """A topology that brings its own weights takes no others, but can be made lazy."""
    if weights == "lazy":
        return topology.lazy()
    if weights != "metropolis":
        raise InputError(
            f"The topology '{topology.name}' brings its own weights, so {weights} weights do not apply; "
            f"leave the default, or use lazy."
        )
    return topology
