"""Where nodes stand."""

import math
from itertools import pairwise

import pytest

from gossamer import topology
from gossamer.report.graph_drawing import MOST_EDGES, places, svg

FAMILIES = ["ring", "chain", "star", "balanced-tree", "complete", "hypercube", "exponential", "grid", "torus"]


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("nodes", [2, 8, 32])
def test_nodes_stand_apart_and_inside_the_drawing(name, nodes):
    graph = topology.get(name, nodes)
    at = places(nodes, graph.graph.edges.tolist())
    assert len(at) == nodes
    assert all(abs(x) <= 1 + 1e-9 and abs(y) <= 1 + 1e-9 for x, y in at)
    assert min(math.dist(a, b) for k, a in enumerate(at) for b in at[:k]) > 0.05


def test_a_star_has_its_hub_in_the_middle_and_a_chain_does_not_cross_itself():
    star = topology.get("star", 9)
    hub = max(range(9), key=lambda node: sum(node in edge for edge in star.graph.edges.tolist()))
    assert places(9, star.graph.edges.tolist())[hub] == (0, 0)
    chain = places(12, [[k, k + 1] for k in range(11)])
    steps = [math.dist(a, b) for a, b in pairwise(chain)]
    assert max(steps) < 1.3


def test_lattices_and_the_cube_look_like_what_they_are():
    def at(name, nodes):
        return places(nodes, topology.get(name, nodes).graph.edges.tolist())

    grid = at("grid", 12)
    assert len({round(x, 6) for x, _ in grid}) == 4
    assert len({round(y, 6) for _, y in grid}) == 3
    torus = at("torus", 16)
    # The edge that closes the first row passes its other nodes at a distance.
    (left, first), (_, second), (_, third), (right, last) = torus[:4]
    assert first == pytest.approx(last)
    assert left < right
    assert max(second, third) < first - 0.1
    cube = at("hypercube", 8)
    front, back = cube[:4], cube[4:]
    shifts = {(round(b[0] - a[0], 6), round(b[1] - a[1], 6)) for a, b in zip(front, back, strict=True)}
    assert len(shifts) == 1
    assert len({round(math.hypot(*place), 6) for place in at("hypercube", 16)}) == 1
    for name in ("ring", "complete", "exponential"):
        assert {round(math.hypot(*place), 6) for place in at(name, 8)} == {1.0}, name


def test_the_drawing_has_every_edge_and_numbers_for_few_nodes():
    edges = topology.get("ring", 8).graph.edges.tolist()
    drawing = svg(8, edges)
    assert drawing.count("<line") == 8
    assert drawing.count("<circle") == drawing.count("<text") == 8
    assert svg(40, [[0, k] for k in range(1, 40)]).count("<text") == 0
    assert svg(100, [[a, b] for a in range(100) for b in range(a)]) == ""
    assert MOST_EDGES < 100 * 99 / 2
