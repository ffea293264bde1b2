"""The method and the graph of a run, given as objects or by name."""

from gossamer import methods, topology
from gossamer.errors import InputError
from gossamer.methods import Method
from gossamer.topology import Graph, Topology

MethodChoice = Method | type[Method] | str


def method_of(given: MethodChoice) -> Method:
    """The method that is meant by an instance, a class (with its defaults) or a name.

    >>> method_of("dsgdm:beta=0.5"), method_of(methods.DSGD)
    (DSGDm(beta=0.5, nesterov=False), DSGD())
    """
    if isinstance(given, str):
        return methods.get(given)
    if isinstance(given, type) and issubclass(given, Method):
        try:
            return given()
        except TypeError as error:
            raise InputError(
                f"{given.__qualname__} cannot be made without arguments ({error}); give an instance of it."
            ) from None
    if not isinstance(given, Method):
        raise InputError(
            f"A method is a gossamer.Method or a name such as 'momentum-tracking', not {given!r}; "
            f"gossamer.methods.names() lists the names."
        )
    return given


def graph_of(given: Topology | str, nodes: int) -> Topology:
    """The topology that is meant by an object or, for so many nodes, by a name.

    >>> graph_of("ring", 8)
    Topology('ring', n=8, degree=2, period=1)
    """
    if isinstance(given, str):
        return topology.get(given, nodes)
    if isinstance(given, Graph):
        raise InputError(
            "A Graph says who talks to whom but not with which weights; give gossamer.topology.on_graph('mine', graph)."
        )
    if not isinstance(given, Topology):
        raise InputError(
            f"The graph of a run is a gossamer.topology.Topology or a name such as 'ring', not {given!r}; "
            f"gossamer.topology.from_networkx, from_edges and from_matrix make one of your own."
        )
    return given
