import numpy as np
import pytest

import gossamer.topology as gt
from gossamer.errors import GossamerError
from gossamer.topology import get, names

SPECS = {"random-regular": "random-regular:degree=4", "erdos-renyi": "erdos-renyi:probability=0.5"}


@pytest.mark.parametrize("name", names())
def test_every_name(name):
    topology = get(SPECS.get(name, name), 16)
    assert topology.name == name
    assert topology.n == 16
    assert get(SPECS.get(name, name), 16, weights="lazy").fingerprint == topology.lazy().fingerprint


def test_every_public_family_and_schedule_has_a_name():
    builders = {name.replace("-", "_") for name in names()}
    others = {
        "from_edges",
        "from_file",
        "from_matrix",
        "from_matrix_file",
        "from_networkx",
        "get",
        "in_turn",
        "names",
        "resolve",
    }
    assert builders == {n for n in gt.__all__ if n.islower()} - others - {"on_graph", "weigh"}


def test_parameters_and_seeds():
    assert get("grid:rows=2", 12).fingerprint == gt.grid(12, rows=2).fingerprint
    assert get("small-world:degree=6, rewire=0.5", 20, seed=3).fingerprint == gt.small_world(20, 6, 0.5, 3).fingerprint
    assert get("random-regular:degree=4,seed=7", 20, seed=3).fingerprint == gt.random_regular(20, 4, 7).fingerprint
    assert get("random-matchings:period=20", 6, seed=2).fingerprint == gt.random_matchings(6, 20, 2).fingerprint
    assert get("balanced-tree:branching=3", 13, weights="fastest").name == "fastest balanced-tree"


def test_topologies_and_files_bring_their_size(tmp_path):
    ring = gt.ring(5)
    assert get(ring) is get(ring, 5) is ring
    edges, matrix = tmp_path / "graph.txt", tmp_path / "weights.csv"
    edges.write_text("0 1\n1 2\n2 0\n")
    np.savetxt(matrix, gt.ring(3).at(0).dense(), delimiter=",")
    for spec in (f"file:{edges}", f"matrix:{matrix}"):
        assert get(spec).fingerprint == get(spec, 3).fingerprint == gt.ring(3).fingerprint
        assert get(spec, weights="lazy").fingerprint == gt.ring(3).lazy().fingerprint
        with pytest.raises(GossamerError, match="has 3 nodes, but 4 were asked for"):
            get(spec, 4)
    with pytest.raises(GossamerError, match="'ring' has 5 nodes, but 6 were asked for"):
        get(ring, 6)
    with pytest.raises(GossamerError, match="brings its own weights, so fastest weights do not apply"):
        get(f"matrix:{matrix}", weights="fastest")


@pytest.mark.parametrize(
    ("spec", "options", "sentence"),
    [
        ("rign", {}, "There is no topology 'rign'; did you mean 'ring'"),
        ("random_regular:degree=3", {}, "did you mean 'random-regular'"),
        ("", {}, "There is no topology ''"),
        ("random-regular:degre=4", {}, "no parameter of random-regular 'degre'; did you mean 'degree'"),
        ("random-regular", {}, "needs degree, as in 'random-regular:degree=4'"),
        ("erdos-renyi", {}, "needs probability, as in 'erdos-renyi:probability=0.3'"),
        (
            "random-regular:degree=four",
            {},
            "degree of the topology 'random-regular' must be a whole number, not 'four'",
        ),
        ("random-regular:degree=4.0", {}, "must be a whole number, not '4.0'"),
        ("random-regular:degree", {}, "must be a whole number, as in key=value"),
        ("erdos-renyi:probability=often", {}, "must be a number, not 'often'"),
        ("ring:degree=2", {}, "'ring' takes no parameters, so leave out ':degree=2'"),
        ("ring", {"weights": "metro"}, "no kind of weights 'metro'; did you mean 'metropolis'"),
        ("ring", {"n": None}, "Say how many nodes the topology 'ring' should have"),
        ("ring", {"n": 0}, "The number of nodes must be"),
        ("file:", {}, "as in 'file:PATH'"),
        ("matrix", {}, "as in 'matrix:PATH'"),
        ("file:missing.txt", {}, "The edge list 'missing.txt' cannot be read"),
        ("one-peer-exponential", {"weights": "uniform"}, "brings its own weights"),
        (["ring"], {}, "given by its name or as a Topology, not as list"),
    ],
)
def test_bad_input(spec, options, sentence):
    with pytest.raises(GossamerError, match=sentence):
        get(spec, **({"n": 8} | options))
