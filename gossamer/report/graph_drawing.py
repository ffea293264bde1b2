"""Drawing a communication graph: the positions of its nodes, and the lines and discs as SVG."""

import math
from collections.abc import Sequence

Edge = Sequence[int]
Place = tuple[float, float]

MOST_EDGES = 3000
"""With more edges a drawing would be a black disc, and slow."""


def places(nodes: int, edges: Sequence[Edge]) -> list[Place]:
    """Coordinates between -1 and 1: a layout for trees, chains, lattices and the cube; a circle for other graphs."""
    if 2 < nodes == len(edges) + 1:
        neighbours: list[list[int]] = [[] for _ in range(nodes)]
        for a, b in edges:
            neighbours[a].append(b)
            neighbours[b].append(a)
        return _chain(neighbours) if max(map(len, neighbours)) <= 2 else _tree(neighbours)
    circle = [_on_circle(k / max(1, nodes)) for k in range(nodes)]
    return _cube(nodes, edges) or _lattice(nodes, edges) or circle


def svg(nodes: int, edges: Sequence[Edge]) -> str:
    """The graph as what stands inside an SVG of 200 by 200; empty if it is too large to draw."""
    if max(nodes, len(edges)) > MOST_EDGES:
        return ""
    at = [(100 + 86 * x, 100 + 86 * y) for x, y in places(nodes, edges)]
    lines, discs = marks(at, edges, 8.0 if nodes <= 32 else max(1.5, 200 / nodes))
    names = "".join(f'<text x="{x:.1f}" y="{y:.1f}" dy=".35em">{k}</text>' for k, (x, y) in enumerate(at))
    return f"<g>{lines}</g>{discs}{names if nodes <= 32 else ''}"


def marks(at: Sequence[Place], edges: Sequence[Edge], radius: float) -> tuple[str, str]:
    """The edges as SVG lines and the nodes as discs."""
    lines = (
        f'<line x1="{at[a][0]:.1f}" y1="{at[a][1]:.1f}" x2="{at[b][0]:.1f}" y2="{at[b][1]:.1f}"/>' for a, b in edges
    )
    return "".join(lines), "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}"/>' for x, y in at)


def _on_circle(turn: float, radius: float = 1.0) -> Place:
    """From the top, clockwise."""
    angle = 2 * math.pi * turn
    return radius * math.sin(angle), -radius * math.cos(angle)


def _cube(nodes: int, edges: Sequence[Edge]) -> list[Place]:
    """The hypercube of eight nodes, seen from the front: bit 0 to the right, bit 1 downwards, bit 2 to the back."""
    if nodes != 8 or len(edges) != 12 or any((a ^ b).bit_count() != 1 for a, b in edges):
        return []
    return [(1.35 * (k & 1) - 0.95 + 0.55 * (k >> 2), 1.35 * (k >> 1 & 1) - 0.4 - 0.55 * (k >> 2)) for k in range(8)]


def _lattice(nodes: int, edges: Sequence[Edge]) -> list[Place]:
    """A grid or torus whose node r * columns + c is in row r and column c; empty if the graph is neither."""
    for rows in range(2, nodes // 2 + 1):
        columns, rest = divmod(nodes, rows)
        whole = rows * (columns - 1) + columns * (rows - 1)
        if rest or len(edges) < whole or not all(_is_step(a, b, rows, columns) for a, b in edges):
            continue
        # The rows and columns of a torus are arcs, so that the edges that wrap around are their chords.
        bend = 0.12 * max(rows, columns) if len(edges) > whole else 0.0
        wide, high = (2 / (number - 1 + bend) for number in (columns, rows))
        wide, high = min(wide, 1.5 * high), min(high, 1.5 * wide)
        return [
            (
                wide * (column - (columns - 1) / 2 + bend * (_arc(row, rows) - 0.5)),
                high * (row - (rows - 1) / 2 + bend * (_arc(column, columns) - 0.5)),
            )
            for row, column in (divmod(node, columns) for node in range(nodes))
        ]
    return []


def _is_step(a: int, b: int, rows: int, columns: int) -> bool:
    """Whether two nodes of a lattice that wraps around are next to each other."""
    down, right = abs(a // columns - b // columns), abs(a % columns - b % columns)
    return (down == 0 and right in (1, columns - 1)) or (right == 0 and down in (1, rows - 1))


def _arc(place: int, number: int) -> float:
    """0 in the middle of `number` places, 1 at both ends."""
    return (2 * place / (number - 1) - 1) ** 2


def _chain(neighbours: list[list[int]]) -> list[Place]:
    """A line that runs back and forth, so that a long one stays readable."""
    end = next(node for node, near in enumerate(neighbours) if len(near) == 1)
    order, before = [end], -1
    while len(order) < len(neighbours):
        following = next(n for n in neighbours[order[-1]] if n != before)
        before = order[-1]
        order.append(following)
    width = max(3, math.ceil(math.sqrt(2 * len(order))))
    rows = math.ceil(len(order) / width)
    found: list[Place] = [(0.0, 0.0)] * len(order)
    for k, node in enumerate(order):
        row, column = divmod(k, width)
        column = column if row % 2 == 0 else width - 1 - column
        found[node] = (2 * column / (width - 1) - 1, 1.2 * (row - (rows - 1) / 2) / max(1, rows - 1))
    return found


def _tree(neighbours: list[list[int]]) -> list[Place]:
    """Every generation on its own circle; a branch gets a share of it in proportion to its leaves."""
    root = _centre(neighbours)
    parent, order = {root: -1}, [root]
    for node in order:
        for child in neighbours[node]:
            if child != parent[node]:
                parent[child] = node
                order.append(child)
    depth = {root: 0}
    for node in order[1:]:
        depth[node] = depth[parent[node]] + 1
    leaves = dict.fromkeys(order, 0)
    for node in reversed(order):
        leaves[node] = leaves[node] or 1
        if node != root:
            leaves[parent[node]] += leaves[node]
    start = {root: 0.0}
    free = dict(start)
    for node in order[1:]:
        start[node] = free[parent[node]]
        free[node] = start[node]
        free[parent[node]] += leaves[node] / leaves[root]
    deepest = max(depth.values())
    return [
        _on_circle(start[node] + leaves[node] / leaves[root] / 2, depth[node] / deepest)
        for node in range(len(neighbours))
    ]


def _centre(neighbours: list[list[int]]) -> int:
    """The last node that remains when the leaves of a tree are removed repeatedly."""
    degree = [len(near) for near in neighbours]
    ring = [node for node, d in enumerate(degree) if d == 1]
    left = len(degree)
    while left > 2:
        left -= len(ring)
        following = []
        for node in ring:
            degree[node] = 0
            for near in neighbours[node]:
                degree[near] -= 1
                if degree[near] == 1:
                    following.append(near)
        ring = following
    return min(ring)
