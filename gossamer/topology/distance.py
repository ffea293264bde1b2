"""Distances between nodes, counted in edges, and the diameter."""

import numpy as np

from gossamer.topology.csr import Ints, circulant_order

SWEEPS = 16  # searches spent on bounds before all remaining nodes are searched at once
BLOCK = 512  # sources that are searched at once, one bit each


def distances(indptr: list[int], indices: list[int], source: int) -> list[int]:
    """Breadth-first search: the number of edges from `source` to every node, -1 where there is no path."""
    n = len(indptr) - 1
    found = [-1] * n
    found[source] = 0
    queue = [source]
    for i in queue:  # the queue grows while it is read
        if len(queue) == n:
            break
        step = found[i] + 1
        for j in indices[indptr[i] : indptr[i + 1]]:
            if found[j] < 0:
                found[j] = step
                queue.append(j)
    return found


def diameter(indptr: Ints, indices: Ints) -> int:
    """The exact diameter of a connected undirected graph.

    A circulant graph looks the same from every node: one search. Otherwise each search from u, of eccentricity e(u),
    bounds the eccentricity of every v by max(d(u, v), e(u) - d(u, v)) <= e(v) <= e(u) + d(u, v); nodes whose upper
    bound does not exceed the largest distance seen so far cannot matter. What a few searches leave open is settled by
    searching from all remaining nodes at once.
    """
    n = len(indptr) - 1
    starts, ends = indptr.tolist(), indices.tolist()
    if circulant_order(indptr, indices) is not None:
        return max(distances(starts, ends, 0))
    low = np.zeros(n, dtype=np.int64)
    high = np.full(n, n, dtype=np.int64)
    largest = 0
    for sweep in range(SWEEPS):
        open_nodes = np.flatnonzero(high > largest)
        if open_nodes.size == 0:
            return largest
        # Peripheral nodes raise the largest distance, central ones lower the upper bounds: take turns.
        pick = np.argmax(high[open_nodes]) if sweep % 2 == 0 else np.argmin(low[open_nodes])
        source = int(open_nodes[pick])
        hops = np.array(distances(starts, ends, source))
        eccentricity = int(hops.max())
        largest = max(largest, eccentricity)
        low = np.maximum(low, np.maximum(hops, eccentricity - hops))
        high = np.minimum(high, eccentricity + hops)
        high[source] = eccentricity
    open_nodes = np.flatnonzero(high > largest)
    blocks = [open_nodes[start : start + BLOCK] for start in range(0, open_nodes.size, BLOCK)]
    return max([largest, *(_largest_eccentricity(indptr, indices, block) for block in blocks)])


def _largest_eccentricity(indptr: Ints, indices: Ints, sources: Ints) -> int:
    """The largest eccentricity among `sources`: bit k of row i says whether source k has reached node i."""
    words, bits = np.divmod(np.arange(sources.size), 64)
    reached = np.zeros((len(indptr) - 1, int(words[-1]) + 1), dtype=np.uint64)
    reached[sources, words] = np.uint64(1) << bits.astype(np.uint64)
    everyone = np.bitwise_or.reduce(reached, axis=0)
    steps = 0
    while np.any(reached != everyone):
        reached |= np.bitwise_or.reduceat(reached[indices], indptr[:-1], axis=0)
        steps += 1
    return steps
