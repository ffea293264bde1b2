import math

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gossamer import topology as gt
from gossamer.errors import GossamerError

BUILDERS = (gt.ring, gt.chain, gt.star, gt.complete, gt.grid, gt.torus, gt.exponential, gt.balanced_tree)
SIMPLE = {build.__name__.replace("_", "-"): build for build in BUILDERS}
SPECS = {"random-regular": "random-regular:degree=4", "erdos-renyi": "erdos-renyi:probability=0.5"}


def edges(topology):
    return {tuple(edge) for edge in topology.graph.edges.tolist()}


def edges_of(graph):
    return {(min(edge), max(edge)) for edge in graph.edges}


def assert_sound(topology, n):
    matrix = topology.at(0).dense()
    assert topology.n == n
    assert topology.is_static
    assert topology.is_symmetric
    assert topology.graph.is_connected
    assert matrix.min() >= 0
    np.testing.assert_allclose(matrix.sum(axis=0), 1, atol=1e-12)
    np.testing.assert_allclose(matrix.sum(axis=1), 1, atol=1e-12)
    assert 0 < topology.p <= 1
    assert 0 < topology.spectral_gap <= 1
    assert -1 < topology.smallest_eigenvalue <= 1


@pytest.mark.parametrize("name", SIMPLE)
@settings(deadline=None, max_examples=20)
@given(n=st.integers(1, 70))
def test_every_family_is_doubly_stochastic_and_connected(name, n):
    topology = SIMPLE[name](n)
    assert_sound(topology, n)
    assert topology.name == name
    twin = nx.empty_graph(n)
    twin.add_edges_from(edges(topology))
    assert topology.is_tree == nx.is_tree(twin)
    assert topology.diameter == nx.diameter(twin)


@settings(deadline=None, max_examples=30)
@given(n=st.integers(1, 40), seed=st.integers(0, 50), data=st.data())
def test_every_random_family_is_doubly_stochastic_and_connected(n, seed, data):
    assert_sound(gt.erdos_renyi(n, 0.5, seed), n)
    if n > 3:
        degree = data.draw(st.integers(2, n - 1).filter(lambda d: n * d % 2 == 0))
        regular = gt.random_regular(n, degree, seed)
        assert_sound(regular, n)
        assert set(regular.graph.degrees.tolist()) == {degree}
        even = 2 * data.draw(st.integers(1, (n - 1) // 2))
        rewire = data.draw(st.sampled_from([0.0, 0.1, 1.0])) if even > 2 else 0.0
        world = gt.small_world(n, even, rewire, seed)
        assert_sound(world, n)
        assert len(world.graph.edges) == n * even // 2


@settings(deadline=None)
@given(st.integers(0, 7))
def test_hypercubes(dimension):
    n = 2**dimension
    topology = gt.hypercube(n)
    assert_sound(topology, n)
    assert topology.degree == topology.diameter == dimension
    assert topology.p == pytest.approx(1 if n == 1 else 1 - ((dimension - 1) / (dimension + 1)) ** 2)


@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize("name", gt.names())
def test_one_and_two_nodes(name, n):
    spec = {"random-regular": f"random-regular:degree={n - 1}", "erdos-renyi": "erdos-renyi:probability=0.5"}
    if name == "small-world":
        with pytest.raises(GossamerError, match="degree must be even and below"):
            gt.get(name, n)
        return
    topology = gt.get(spec.get(name, name), n)
    assert (topology.p, topology.spectral_gap, topology.diameter, topology.degree) == (1, 1, n - 1, n - 1)
    np.testing.assert_array_equal(topology.at(0).dense(), np.full((n, n), 1 / n))


def test_ring_of_25():
    assert round(gt.ring(25).p, 5) == 0.04145
    assert gt.ring(25).p == pytest.approx(1 - ((1 + 2 * math.cos(2 * math.pi / 25)) / 3) ** 2, abs=1e-15)


def test_eight_nodes_from_closed_forms():
    ring, cube, exponential = gt.ring(8), gt.hypercube(8), gt.exponential(8)
    assert ring.p == pytest.approx(1 - ((1 + math.sqrt(2)) / 3) ** 2, abs=1e-14)
    assert ring.smallest_eigenvalue == pytest.approx(-1 / 3, abs=1e-14)
    assert cube.p == pytest.approx(3 / 4, abs=1e-14)
    assert cube.smallest_eigenvalue == pytest.approx(-1 / 2, abs=1e-14)
    # Eigenvalues (1 + 2 cos x + 2 cos 2x + cos 4x)/6 at x = pi k/4; the largest in size is 1/3, at k = 4.
    sizes = [(1 + 2 * math.cos(x) + 2 * math.cos(2 * x) + math.cos(4 * x)) / 6 for x in np.pi * np.arange(1, 8) / 4]
    assert max(map(abs, sizes)) == pytest.approx(1 / 3)
    assert exponential.p == pytest.approx(8 / 9, abs=1e-14)
    assert exponential.smallest_eigenvalue == pytest.approx(min(sizes), abs=1e-14)
    assert (ring.degree, cube.degree, exponential.degree) == (2, 3, 5)
    assert (ring.diameter, cube.diameter, exponential.diameter) == (4, 3, 2)
    assert set(exponential.at(0).values.tolist()) == {1 / 6}


@pytest.mark.parametrize("n", [1, 2, 3, 4, 6, 12, 13, 16])
def test_families_are_the_graphs_of_their_names(n):
    assert edges(gt.ring(n)) == edges_of(nx.cycle_graph(n)) - {(0, 0)}
    assert edges(gt.chain(n)) == edges_of(nx.path_graph(n))
    assert edges(gt.star(n)) == edges_of(nx.star_graph(n - 1))
    assert edges(gt.complete(n)) == edges_of(nx.complete_graph(n))
    assert edges(gt.exponential(n)) == {
        (min(i, j), max(i, j)) for i in range(n) for k in range(5) if 2**k < n for j in [(i + 2**k) % n]
    }
    assert edges(gt.balanced_tree(n, branching=3)) == {((i - 1) // 3, i) for i in range(1, n)}


def test_rectangles():
    grid, torus = nx.grid_2d_graph(3, 4), nx.grid_2d_graph(3, 4, periodic=True)
    number = {(r, c): 4 * r + c for r in range(3) for c in range(4)}
    assert edges(gt.grid(12)) == edges_of(nx.relabel_nodes(grid, number))
    assert edges(gt.torus(12)) == edges_of(nx.relabel_nodes(torus, number))
    assert gt.grid(12, rows=2).diameter == 6
    assert edges(gt.grid(7)) == edges(gt.chain(7))
    assert edges(gt.torus(7)) == edges(gt.ring(7))


def test_seeds_decide_random_graphs():
    for build in (
        lambda s: gt.random_regular(20, 3, s),
        lambda s: gt.erdos_renyi(20, 0.3, s),
        lambda s: gt.small_world(20, seed=s),
    ):
        assert build(1).fingerprint == build(1).fingerprint
        assert build(1).fingerprint != build(2).fingerprint


def test_edge_probability_is_hit():
    counts = [len(gt.erdos_renyi(40, 0.3, seed).graph.edges) for seed in range(60)]
    assert np.mean(counts) == pytest.approx(0.3 * 40 * 39 / 2, rel=0.03)
    far_apart = np.mean([(0, 39) in edges(gt.erdos_renyi(40, 0.3, seed)) for seed in range(200)])
    assert far_apart == pytest.approx(0.3, abs=0.1)


def test_rewiring_probability_is_hit():
    lattice = edges(gt.small_world(200, 4, 0.0))
    assert lattice == edges_of(nx.circulant_graph(200, [1, 2]))
    moved = [len(lattice - edges(gt.small_world(200, 4, 0.2, seed))) for seed in range(20)]
    assert np.mean(moved) == pytest.approx(0.2 * 400, rel=0.1)


def test_all_regular_graphs_can_come_up():
    # A cubic graph of 6 nodes is K_3,3 (no triangle) or a prism (two triangles), by way of their complements; one of
    # 8 nodes has 0, 1, 2 or 4 triangles.
    def triangles(n, seed):
        return sum(nx.triangles(nx.Graph(list(edges(gt.random_regular(n, 3, seed))))).values()) // 3

    assert {triangles(6, seed) for seed in range(40)} == {0, 2}
    assert {triangles(8, seed) for seed in range(40)} == {0, 1, 2, 4}


def test_a_full_small_world_has_nothing_to_rewire():
    assert edges(gt.small_world(5, 4, 1.0)) == edges(gt.complete(5))


def test_large_graphs():
    assert gt.random_regular(1024, 4).degree == 4
    assert gt.random_regular(500, 496).degree == 496  # as the complement of a sparse one
    assert gt.small_world(2000).n == 2000


@pytest.mark.parametrize(
    ("build", "sentence"),
    [
        (lambda: gt.hypercube(12), "A hypercube has a power of two of nodes, not 12; use 8 or 16"),
        (lambda: gt.random_regular(5, 3), "no regular graph of 5 nodes of degree 3.* must be even"),
        (lambda: gt.random_regular(4, 4), "4 nodes has a degree of at most 3, not 4"),
        (lambda: gt.random_regular(4, 1), "is not connected; use degree 2 or more"),
        (lambda: gt.random_regular(4, 2.5), "degree of a regular graph must be a whole number"),
        (lambda: gt.random_regular(4, 2, seed=-1), "The seed must be a whole number of at least 0"),
        (lambda: gt.erdos_renyi(100, 0.001), "No connected graph of 100 nodes was found at edge probability 0.001"),
        (lambda: gt.erdos_renyi(4, 1.5), "edge probability must be a number between 0 and 1, not 1.5"),
        (lambda: gt.erdos_renyi(4, float("nan")), "between 0 and 1, not nan"),
        (lambda: gt.erdos_renyi(4, "0.3"), "between 0 and 1, not '0.3'"),
        (lambda: gt.small_world(10, 3), "degree must be even and below the 10 nodes, not 3"),
        (lambda: gt.small_world(4, 4), "degree must be even and below the 4 nodes, not 4"),
        (lambda: gt.small_world(10, 4, 2), "rewiring probability must be a number between 0 and 1"),
        (lambda: gt.grid(12, rows=5), "A grid of 12 nodes cannot have 5 rows"),
        (lambda: gt.torus(12, rows=0), "number of rows of a torus must be a whole number of at least 1"),
        (lambda: gt.balanced_tree(5, branching=0), "branching of a tree must be a whole number of at least 1"),
    ],
)
def test_bad_parameters(build, sentence):
    with pytest.raises(GossamerError, match=sentence):
        build()


def test_unlucky_draws_get_a_sentence(monkeypatch):
    monkeypatch.setattr("gossamer.topology.families.connected_draw", lambda draw, rng: None)
    with pytest.raises(GossamerError, match="No connected regular graph of 8 nodes of degree 3"):
        gt.random_regular(8, 3)
    with pytest.raises(GossamerError, match=r"No connected small world of 8 nodes of degree 4 .* probability 0.1"):
        gt.small_world(8)


@pytest.mark.parametrize("n", [0, -3, 2.0, "8", None])
def test_bad_numbers_of_nodes(n):
    random = (lambda n: gt.random_regular(n, 2), lambda n: gt.erdos_renyi(n, 0.5), gt.small_world, gt.random_matchings)
    for build in (*SIMPLE.values(), gt.hypercube, gt.one_peer_exponential, *random):
        with pytest.raises(GossamerError, match="The number of nodes must be a whole number of at least 1"):
            build(n)


@pytest.mark.parametrize("name", gt.names())
def test_every_name(name):
    topology = gt.get(SPECS.get(name, name), 16)
    assert topology.name == {"lossy": "lossy ring"}.get(name, name)
    assert topology.n == 16
    assert gt.get(SPECS.get(name, name), 16, weights="lazy").fingerprint == topology.lazy().fingerprint


def test_every_public_family_and_schedule_has_a_name():
    builders = {name.replace("-", "_") for name in gt.names()}
    others = {"get", "in_turn", "names", "on_graph", "regraph", "resolve", "weigh"}
    assert builders == {n for n in gt.__all__ if n.islower() and not n.startswith("from_")} - others


def test_case_and_underscores_do_not_matter():
    assert gt.get("Ring", 8, weights="Lazy").name == "lazy ring"
    assert gt.get("random_regular:degree=3", 8).fingerprint == gt.random_regular(8, 3).fingerprint


def test_parameters_and_seeds():
    assert gt.get("grid:rows=2", 12).fingerprint == gt.grid(12, rows=2).fingerprint
    assert (
        gt.get("small-world:degree=6, rewire=0.5", 20, seed=3).fingerprint == gt.small_world(20, 6, 0.5, 3).fingerprint
    )
    assert gt.get("random-regular:degree=4,seed=7", 20, seed=3).fingerprint == gt.random_regular(20, 4, 7).fingerprint
    assert gt.get("random-matchings:period=20", 6, seed=2).fingerprint == gt.random_matchings(6, 20, 2).fingerprint
    assert gt.get("balanced-tree:branching=3", 13, weights="fastest").name == "fastest balanced-tree"


def test_topologies_and_files_bring_their_size(tmp_path):
    ring = gt.ring(5)
    assert gt.get(ring) is gt.get(ring, 5) is ring
    edges, matrix = tmp_path / "graph.txt", tmp_path / "weights.csv"
    edges.write_text("0 1\n1 2\n2 0\n")
    np.savetxt(matrix, gt.ring(3).at(0).dense(), delimiter=",")
    for spec in (f"file:{edges}", f"matrix:{matrix}"):
        assert gt.get(spec).fingerprint == gt.get(spec, 3).fingerprint == gt.ring(3).fingerprint
        assert gt.get(spec, weights="lazy").fingerprint == gt.ring(3).lazy().fingerprint
        with pytest.raises(GossamerError, match="has 3 nodes, but 4 were asked for"):
            gt.get(spec, 4)
    with pytest.raises(GossamerError, match="'ring' has 5 nodes, but 6 were asked for"):
        gt.get(ring, 6)
    with pytest.raises(GossamerError, match="brings its own weights, so fastest weights do not apply"):
        gt.get(f"matrix:{matrix}", weights="fastest")


@pytest.mark.parametrize(
    ("spec", "options", "sentence"),
    [
        ("rign", {}, "There is no topology 'rign'; did you mean 'ring'"),
        ("", {}, "There is no topology ''"),
        ("random-regular:degre=4", {}, "no parameter of random-regular 'degre'; did you mean 'degree'"),
        ("random-regular", {}, "needs degree, as in 'random-regular:degree=4'"),
        ("erdos-renyi", {}, "needs probability, as in 'erdos-renyi:probability=0.3'"),
        ("random-regular:degree=four", {}, "degree of the topology 'random-regular' must be a whole number, not 'f"),
        ("random-regular:degree=4.0", {}, "must be a whole number, not '4.0'"),
        ("random-regular:degree", {}, "must be a whole number, as in key=value"),
        ("erdos-renyi:probability=often", {}, "must be a number, not 'often'"),
        ("ring:degree=2", {}, "'ring' takes no parameters, so leave out ':degree=2'"),
        ("ring", {"weights": "metro"}, "no kind of weights 'metro'; did you mean 'metropolis'"),
        ("ring", {"n": None}, "Say how many nodes the topology 'ring' should have"),
        ("ring", {"n": 0}, "The number of nodes must be"),
        ("file:", {}, "as in 'file:PATH'"),
        ("matrix", {}, "as in 'matrix:PATH'"),
        ("one-peer-exponential", {"weights": "uniform"}, "brings its own weights"),
        (["ring"], {}, "given by its name or as a Topology, not as list"),
    ],
)
def test_bad_descriptions(spec, options, sentence):
    with pytest.raises(GossamerError, match=sentence):
        gt.get(spec, **({"n": 8} | options))
