"""The families of graphs: drawings, mixing constants, and the cost of a round."""

from method_blocks import table

from gossamer import topology
from gossamer.errors import GossamerError
from gossamer.report.graph_drawing import marks, places
from gossamer.topology import Topology

SIZES = (8, 16, 25)
FAMILIES = (
    "ring", "chain", "star", "complete", "grid", "torus", "hypercube", "exponential", "balanced-tree",
    "random-regular:degree=4", "erdos-renyi:probability=0.5", "small-world",
)  # fmt: skip
SCHEDULES = (
    "one-peer-exponential", "random-matchings", "base", "base:degree=2", "simple-base", "epidemic", "lossy",
)  # fmt: skip
DRAWN = 8
SIDE = 120


def families() -> str:
    """The static graphs: a drawing of 8 nodes, degree and diameter, and p for three sizes."""
    head = ["", "name", "degree", "diameter", *(f"p, {n} nodes" for n in SIZES), f"fastest p, {SIZES[0]} nodes"]
    rows = []
    for spec in FAMILIES:
        name, graph = _name(spec), topology.get(spec, DRAWN)
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
    for spec in SCHEDULES:
        graph = topology.get(spec, DRAWN)
        rows.append([f"`{spec}`", str(graph.degree), str(graph.period), *(_p(spec, n) for n in SIZES)])
    return table(head, rows)


def drawings() -> dict[str, str]:
    """File name to SVG, for every family."""
    return {f"{_name(spec)}.svg": _svg(topology.get(spec, DRAWN)) for spec in FAMILIES}


def _name(spec: str) -> str:
    return spec.split(":")[0]


def _p(spec: str, n: int) -> str:
    try:
        return f"{topology.get(spec, n).p:.4f}"
    except GossamerError:
        return "–"


def _svg(graph: Topology) -> str:
    edges = graph.graph.edges.tolist()
    half = SIDE / 2
    at = [(half + (half - 10) * x, half + (half - 10) * y) for x, y in places(graph.n, edges)]
    lines, discs = marks(at, edges, 6)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {SIDE} {SIDE}" width="{SIDE}" height="{SIDE}">',
            f"<title>{graph.name}, {graph.n} nodes</title>",
            f'<g stroke="#888" stroke-width="1.5">{lines}</g>',
            f'<g fill="#00897b">{discs}</g>',
            "</svg>\n",
        ]
    )
