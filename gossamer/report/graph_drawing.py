"""A communication graph as a picture: where its nodes stand, and the drawing as SVG."""

import math
from collections.abc import Sequence

Edge = Sequence[int]
Place = tuple[float, float]

MOST_EDGES = 3000
"""A drawing with more would be a black disc, and slow."""


def places(nodes: int, edges: Sequence[Edge]) -> list[Place]:
    """Coordinates in the unit disc: a tree spreads from its centre, everything else stands on a circle."""
    neighbours: list[list[int]] = [[] for _ in range(nodes)]
    for a, b in edges:
        neighbours[a].append(b)
        neighbours[b].append(a)
    if 2 < nodes == len(edges) + 1:
        return _chain(neighbours) if max(map(len, neighbours)) <= 2 else _tree(neighbours)
    return [_on_circle(k / max(1, nodes)) for k in range(nodes)]


def svg(nodes: int, edges: Sequence[Edge], description: str) -> str:
    """The graph as an SVG drawing in the page's colours."""
    if len(edges) > MOST_EDGES:
        return ""
    at = [(100 + 86 * x, 100 + 86 * y) for x, y in places(nodes, edges)]
    radius = 8.0 if nodes <= 32 else max(1.5, 200 / nodes)
    lines = "".join(
        f'<line x1="{at[a][0]:.1f}" y1="{at[a][1]:.1f}" x2="{at[b][0]:.1f}" y2="{at[b][1]:.1f}"/>' for a, b in edges
    )
    discs = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}"/>' for x, y in at)
    names = "".join(f'<text x="{x:.1f}" y="{y:.1f}" dy=".35em">{k}</text>' for k, (x, y) in enumerate(at))
    return (
        f'<svg class="graph" viewBox="0 0 200 200" role="img" aria-label="{description}">'
        f"<g>{lines}</g>{discs}{names if nodes <= 32 else ''}</svg>"
    )


def _on_circle(turn: float, radius: float = 1.0) -> Place:
    """From the top, clockwise."""
    angle = 2 * math.pi * turn
    return radius * math.sin(angle), -radius * math.cos(angle)


def _chain(neighbours: list[list[int]]) -> list[Place]:
    """A line that runs to and fro, so that a long one stays readable."""
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
    """Every generation on its own circle; a branch gets a share of the circle in proportion to its leaves."""
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
    """The last node that remains when the leaves of a tree are taken off again and again."""
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
