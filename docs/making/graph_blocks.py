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
ROUNDS, FEW = 3, 6
"""Of schedules: so many rounds are drawn side by side, with so many nodes."""


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
    """The schedules: a drawing of their first rounds, messages per round, period, and p of a whole period."""
    head = [
        "",
        "name",
        "messages a node sends per round",
        "period of 8 nodes",
        *(f"p of a period, {n} nodes" for n in SIZES),
    ]
    rows = []
    for spec in SCHEDULES:
        graph = topology.get(spec, DRAWN)
        drawn = f"![{ROUNDS} rounds of {spec}, {FEW} nodes](topologies/{_file(spec)}.svg)"
        rows.append([drawn, f"`{spec}`", str(graph.degree), str(graph.period), *(_p(spec, n) for n in SIZES)])
    return table(head, rows)


def drawings() -> dict[str, str]:
    """File name to SVG, for every family and schedule."""
    static = {f"{_name(spec)}.svg": _svg(topology.get(spec, DRAWN), 1) for spec in FAMILIES}
    return static | {f"{_file(spec)}.svg": _svg(topology.get(spec, FEW), ROUNDS) for spec in SCHEDULES}


def _file(spec: str) -> str:
    return spec.replace(":", "-").replace("=", "-")


def _name(spec: str) -> str:
    return spec.split(":")[0]


def _p(spec: str, n: int) -> str:
    try:
        return f"{topology.get(spec, n).p:.4f}"
    except GossamerError:
        return "–"


def _svg(graph: Topology, rounds: int) -> str:
    """A graph, or the rounds of a schedule side by side, nodes in the same places."""
    half, width = SIDE / 2, SIDE * rounds
    at = places(graph.n, graph.graph.edges.tolist() if rounds == 1 else topology.ring(graph.n).graph.edges.tolist())
    lines, discs = "", ""
    for r in range(rounds):
        here = [(SIDE * r + half + (half - 10) * x, half + (half - 10) * y) for x, y in at]
        drawn = marks(here, graph.graph.edges.tolist() if rounds == 1 else _edges(graph, r), 6)
        lines, discs = lines + drawn[0], discs + drawn[1]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {SIDE}" width="{width}" height="{SIDE}">',
            f"<title>{graph.name}, {graph.n} nodes</title>",
            f'<g stroke="#888" stroke-width="1.5">{lines}</g>',
            f'<g fill="#00897b">{discs}</g>',
            "</svg>\n",
        ]
    )


def _edges(graph: Topology, round: int) -> list[list[int]]:
    """Who talks to whom in a round."""
    mixing = graph.at(round)
    return [[int(j), i] for i in range(graph.n) for j in mixing.senders(i) if j < i or i not in mixing.senders(int(j))]
