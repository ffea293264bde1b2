"""The families of graphs: a drawing, their mixing constants, and what a round costs."""

import math
from collections.abc import Callable

from method_blocks import table

from gossamer import topology
from gossamer.errors import GossamerError
from gossamer.topology import Topology

SIZES = (8, 16, 25)
FAMILIES = {
    "ring": "ring",
    "chain": "chain",
    "star": "star",
    "complete": "complete",
    "grid": "grid",
    "torus": "torus",
    "hypercube": "hypercube",
    "exponential": "exponential",
    "balanced-tree": "balanced-tree",
    "random-regular": "random-regular:degree=4",
    "erdos-renyi": "erdos-renyi:probability=0.5",
    "small-world": "small-world",
}
SCHEDULES = {"one-peer-exponential": "one-peer-exponential", "random-matchings": "random-matchings"}
DRAWN = 8
SIDE = 120


def families() -> str:
    """The static graphs: a drawing of 8 nodes, degree and diameter, and p for three sizes."""
    head = ["", "name", "degree", "diameter", *(f"p, {n} nodes" for n in SIZES), f"fastest p, {SIZES[0]} nodes"]
    rows = []
    for name, spec in FAMILIES.items():
        graph = topology.get(spec, DRAWN)
        fastest = topology.get(spec, DRAWN, weights="fastest").p
        rows.append(
            [
                f"![{name} of {DRAWN} nodes](topologies/{name}.svg)",
                f"`{spec}`",
                str(graph.degree),
                str(graph.diameter),
                *(_p(spec, n) for n in SIZES),
                f"{fastest:.4f}",
            ]
        )
    return table(head, rows)


def schedules() -> str:
    """The schedules: messages per round, period, and p of a whole period."""
    head = [
        "name",
        "messages a node sends per round",
        "period of 8 nodes",
        *(f"p of a period, {n} nodes" for n in SIZES),
    ]
    rows = []
    for spec in SCHEDULES.values():
        graph = topology.get(spec, DRAWN)
        rows.append([f"`{spec}`", str(graph.degree), str(graph.period), *(_p(spec, n) for n in SIZES)])
    return table(head, rows)


def drawings() -> dict[str, str]:
    """File name to SVG, for every family."""
    return {
        f"{name}.svg": _svg(topology.get(spec, DRAWN), PLACES.get(name, _circle)) for name, spec in FAMILIES.items()
    }


def _p(spec: str, n: int) -> str:
    try:
        return f"{topology.get(spec, n).p:.4f}"
    except GossamerError:
        return "–"


Places = list[tuple[float, float]]


def _circle(n: int) -> Places:
    return [(math.sin(2 * math.pi * i / n), -math.cos(2 * math.pi * i / n)) for i in range(n)]


def _line(n: int) -> Places:
    return [(2 * i / (n - 1) - 1, 0.25 * (-1) ** i) for i in range(n)]


def _star(n: int) -> Places:
    return [(0, 0), *_circle(n - 1)]


def _lattice(n: int) -> Places:
    """Two rows, a little askew so that the edges that wrap around can be seen."""
    places = []
    for i in range(n):
        row, column = divmod(i, n // 2)
        places.append((1.8 * column / (n // 2 - 1) - 0.95 + 0.12 * row, 0.9 * row - 0.45 + 0.15 * (column % 2)))
    return places


def _cube(n: int) -> Places:
    """A cube seen from the front: bit 0 to the right, bit 1 downwards, bit 2 to the back."""
    return [((i & 1) * 1.3 - 0.95 + (i >> 2) * 0.6, (i >> 1 & 1) * 1.3 - 0.4 - (i >> 2) * 0.5) for i in range(n)]


def _tree(n: int) -> Places:
    places = []
    for i in range(n):
        level = (i + 1).bit_length() - 1
        width = 2**level
        places.append((2 * (i + 1 - width + 0.5) / width - 1, 0.65 * level - 1))
    return places


PLACES: dict[str, Callable[[int], Places]] = {
    "chain": _line,
    "star": _star,
    "grid": _lattice,
    "torus": _lattice,
    "hypercube": _cube,
    "balanced-tree": _tree,
}


def _svg(graph: Topology, places: Callable[[int], Places]) -> str:
    half, radius = SIDE / 2, SIDE / 2 - 10
    points = [(half + radius * x, half + radius * y) for x, y in places(graph.n)]
    lines = [
        f'<line x1="{points[i][0]:.1f}" y1="{points[i][1]:.1f}" x2="{points[j][0]:.1f}" y2="{points[j][1]:.1f}"/>'
        for i, j in graph.graph.edges.tolist()
    ]
    dots = [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="6"/>' for x, y in points]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {SIDE} {SIDE}" width="{SIDE}" height="{SIDE}">',
            f"<title>{graph.name}, {graph.n} nodes</title>",
            f'<g stroke="#888" stroke-width="1.5">{"".join(lines)}</g>',
            f'<g fill="#00897b">{"".join(dots)}</g>',
            "</svg>\n",
        ]
    )
