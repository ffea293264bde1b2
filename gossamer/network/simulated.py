"""All nodes in one process: vectors are stacked into [N, d], and mixing is the product W X."""

import warnings
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from gossamer.compression import Compressed
from gossamer.errors import InputError
from gossamer.network.contract import Ready
from gossamer.topology import Mixing, Topology

# Measured on CPUs: the dense product beats MKL's sparse one where more than this share of the weights is not zero, and
# where it takes at most so many multiplications, because its call has less overhead.
DENSE_FROM = 1 / 8
DENSE_WITHIN = 250_000
# Where MKL does not help, it beats the sums over neighbours from this share on.
DENSE_FROM_WITHOUT_MKL = 1 / 25
# On other devices one product beats many sums at least up to so many nodes.
DENSE_UP_TO = 100
# Neighbours are summed for so many numbers, but at least so many rows, at a time: what is summed stays in the cache.
BLOCK = 1 << 19
FEWEST_ROWS = 8

Product = Callable[[Tensor, Tensor], object]


class SimulatedNetwork:
    """The network of a simulation: every message arrives at once.

    >>> from gossamer import topology
    >>> net = SimulatedNetwork(topology.ring(3), dtype=torch.float64)
    >>> (mixed,) = net.mix(torch.tensor([[0.0], [3.0], [6.0]], dtype=torch.float64), round=0).wait()
    >>> mixed.flatten().tolist()
    [3.0, 3.0, 3.0]
    """

    def __init__(
        self, topology: Topology, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu"
    ) -> None:
        self.topology = topology
        self.n = topology.n
        self.dtype = dtype
        self.device = torch.device(device)
        self._period = topology.period
        self._products: dict[tuple[int, torch.Size, torch.dtype], Product] = {}
        self._made: dict[tuple[int, bool, torch.dtype], Product] = {}
        self._owner: Tensor | None = None

    def mix(self, *vectors: Tensor | Compressed, round: int, out: tuple[Tensor, ...] | None = None) -> Ready:
        """W X for every vector X, with the weights of `round`."""
        index = round % self._period
        stacks = [v.values if isinstance(v, Compressed) else v for v in vectors]
        if out is None:
            out = tuple(torch.empty_like(v) for v in stacks)
        for stack, result in zip(stacks, out, strict=True):
            vector = stack.to(result.dtype)
            product = self._products.get((index, vector.shape, vector.dtype)) or self._product_for(vector, index)
            product(vector, result)
        return Ready(*out)

    def average(self, vector: Tensor, *, round: int) -> Tensor:
        """The mean over the rows, shown in every row; they are added one after the other, as real nodes do."""
        total = vector[0].clone()
        for row in vector[1:]:
            total.add_(row)
        return total.div_(self.n).expand_as(vector)

    def spread(self, vector: Tensor) -> Tensor:
        """Row (i, j) is node i's vector; rows are ordered by i, then j."""
        return vector[self._edges()[0]]

    def collect(self, rows: Tensor) -> Tensor:
        """Row i is the sum of the rows (i, j) over the neighbours j of node i."""
        return rows.new_zeros(self.n, rows.shape[1]).index_add_(0, self._edges()[0], rows)

    def exchange(self, *rows: Tensor, round: int) -> Ready:
        """Row (i, j) becomes row (j, i)."""
        reverse = self._edges()[1]
        return Ready(*(r[reverse] for r in rows))

    def _edges(self) -> tuple[Tensor, Tensor]:
        """For every directed edge (i, j), ordered by i then j: its owner i, and the position of (j, i)."""
        if self._owner is None:
            graph = self.topology.graph
            both = np.concatenate([graph.edges, graph.edges[:, ::-1]])
            both = both[np.lexsort((both[:, 1], both[:, 0]))]
            self._owner = torch.from_numpy(both[:, 0].copy()).to(self.device)
            self._reverse = torch.from_numpy(np.lexsort((both[:, 0], both[:, 1]))).to(self.device)
        return self._owner, self._reverse

    def _product_for(self, stack: Tensor, index: int) -> Product:
        """The product with these weights that is the fastest for stacks of this shape and type, found once."""
        shape = stack.shape
        if len(shape) != 2 or shape[0] != self.n:
            raise InputError(
                f"mix was given a tensor of the shape {tuple(shape)}, but a simulation mixes stacks "
                f"[N, d] with one row for each of the N = {self.n} nodes; keep a row per node: sums and means of "
                f"coordinates run over dim=-1, and net.average(v, round=round) is the mean over the nodes."
            )
        kind = index, self.n**2 * shape[1] <= DENSE_WITHIN, stack.dtype
        if kind not in self._made:
            self._made[kind] = self._make(*kind)
        self._products[index, shape, stack.dtype] = self._made[kind]
        return self._made[kind]

    def _make(self, index: int, is_small: bool, dtype: torch.dtype) -> Product:
        mixing = self.topology.at(index)
        share = len(mixing.values) / self.n**2
        if self.device.type != "cpu":
            return self._dense(mixing, dtype) if self.n <= DENSE_UP_TO else self._neighbour_sums(mixing, dtype)
        if self._mkl_helps(dtype):
            return self._dense(mixing, dtype) if share > DENSE_FROM or is_small else self._sparse(mixing, dtype)
        return self._dense(mixing, dtype) if share > DENSE_FROM_WITHOUT_MKL else self._neighbour_sums(mixing, dtype)

    def _mkl_helps(self, dtype: torch.dtype) -> bool:
        available: bool = torch.backends.mkl.is_available()  # type: ignore[no-untyped-call]
        return available and dtype in (torch.float32, torch.float64)

    def _dense(self, mixing: Mixing, dtype: torch.dtype) -> Product:
        weights = torch.from_numpy(mixing.dense()).to(self.device, dtype)

        def product(x: Tensor, out: Tensor) -> None:
            torch.mm(weights, x, out=out)

        return product

    def _sparse(self, mixing: Mixing, dtype: torch.dtype) -> Product:
        """`_neighbour_sums` by MKL, two to three times faster; the same bits on any number of threads."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Sparse", UserWarning)  # its interface may change in some later release
            weights = torch.sparse_csr_tensor(
                torch.from_numpy(mixing.indptr.astype(np.int32)),
                torch.from_numpy(mixing.indices.astype(np.int32)),
                torch.from_numpy(mixing.values.copy()).to(dtype),
                size=(self.n, self.n),
            )

        def product(x: Tensor, out: Tensor) -> None:
            torch.addmm(out, weights, x, beta=0, out=out)

        return product

    def _neighbour_sums(self, mixing: Mixing, dtype: torch.dtype) -> Product:
        """out_i = sum_j W_ij x_j over the stored weights only, j ascending."""
        starts = torch.from_numpy(mixing.indptr.astype(np.int64)).to(self.device)
        senders = torch.from_numpy(mixing.indices.astype(np.int64)).to(self.device)
        weights = torch.from_numpy(mixing.values.copy()).to(self.device, dtype)
        bounds = mixing.indptr.tolist()

        def product(x: Tensor, out: Tensor) -> None:
            rows = max(FEWEST_ROWS, BLOCK // x.shape[1])
            for first in range(0, self.n, rows):
                last = min(first + rows, self.n)
                own = slice(bounds[first], bounds[last])
                out[first:last] = torch.nn.functional.embedding_bag(
                    senders[own], x, starts[first:last] - own.start, mode="sum", per_sample_weights=weights[own]
                )

        return product
