"""What a method may ask of a network.

The same calls serve two networks. On the simulated one every vector is a stack [N, d], row i belonging to node i, and a
message arrives at once. On a real one every vector is one node's own [d] and a message travels until it is waited for.
"""

from typing import Protocol, runtime_checkable

from torch import Tensor

from gossamer.compression import Compressed
from gossamer.topology import Topology


@runtime_checkable
class Pending(Protocol):
    """A message under way."""

    def wait(self) -> tuple[Tensor, ...]:
        """The vectors that arrived. May be called more than once; the tensors are the same each time."""
        ...


class Ready:
    """A message that has already arrived: in the simulator, at the start of a run, or out of a checkpoint.

    >>> import torch
    >>> Ready(torch.ones(2)).wait()
    (tensor([1., 1.]),)
    """

    __slots__ = ("vectors",)

    def __init__(self, *vectors: Tensor) -> None:
        self.vectors = vectors

    def wait(self) -> tuple[Tensor, ...]:
        """The vectors, at once."""
        return self.vectors


class Network(Protocol):
    """How vectors move between nodes. A network keeps no round counter: the round is always given.

    >>> import torch
    >>> from gossamer import topology
    >>> from gossamer.network import SimulatedNetwork
    >>> net: Network = SimulatedNetwork(topology.ring(3), torch.float64)
    >>> net.mix(torch.tensor([[0.0], [3.0], [6.0]], dtype=torch.float64), round=0).wait()[0].round().flatten()
    tensor([3., 3., 3.], dtype=torch.float64)
    """

    @property
    def n(self) -> int:
        """The number of nodes."""
        ...

    @property
    def topology(self) -> Topology:
        """Who is joined to whom, with which weights."""
        ...

    def mix(self, *vectors: Tensor | Compressed, round: int, out: tuple[Tensor, ...] | None = None) -> Pending:
        """Average each vector with the neighbours: node i receives sum_j W_ij v_j, with the weights W of `round`.

        A compressed vector travels in its compressor's encoding, and v_j are the numbers that it decodes to; they are
        summed in the type of `out`.
        All vectors travel in one message per neighbour. They are read before the call returns, so the caller may
        overwrite them afterwards. The results are written into `out`, one tensor per vector, which must not overlap
        the vectors and must be left alone until `wait()`; without `out` new tensors are made.
        """
        ...

    def average(self, vector: Tensor, *, round: int) -> Tensor:
        """The exact mean over all nodes in `round`, in the shape of `vector` (not to be written to)."""
        ...

    def spread(self, vector: Tensor) -> Tensor:
        """One row for each of a node's edges, all equal to its vector: [d] -> [degree, d], [N, d] -> [edges, d]."""
        ...

    def collect(self, rows: Tensor) -> Tensor:
        """The sum of a node's edge rows: the other way round than `spread`."""
        ...

    def exchange(self, *rows: Tensor, round: int) -> Pending:
        """Swap edge rows with the neighbours: the row of edge (i, j) comes back holding what j put into (j, i)."""
        ...
