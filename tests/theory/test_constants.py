"""The numbers a bound is made of."""

import math

import pytest

from gossamer import GossamerError, topology
from gossamer.problems import Logistic, NonconvexCosine, Quadratic
from gossamer.theory import ProblemConstants

GOOD = {"nodes": 8, "p": 0.5, "smoothness": 1.0, "gap": 1.0, "sigma2": 1.0}


def test_constants_are_read_off_a_problem_and_a_graph():
    problem = NonconvexCosine(nodes=8, dim=2, sigma2=3.0)
    constants = ProblemConstants.of(problem, topology.hypercube(8))
    assert constants.nodes == 8
    assert constants.p == pytest.approx(0.75)
    assert constants.smoothness == 1.5
    assert constants.gap == pytest.approx(2 * (1 - math.cos(1.0)))
    assert constants.sigma2 == 3.0


def test_the_noise_of_mini_batches_is_measured_at_the_start():
    problem = Logistic.synthetic(nodes=4, samples=10, dim=2, batch=2)
    assert ProblemConstants.of(problem, topology.ring(4)).sigma2 == problem.noise(problem.start()) > 0


def test_problem_and_graph_must_have_the_same_nodes():
    with pytest.raises(GossamerError, match="3 nodes but the graph has 4"):
        ProblemConstants.of(Quadratic.synthetic(nodes=3), topology.ring(4))


@pytest.mark.parametrize("name", ["one-peer-exponential", "random-matchings"])
def test_the_p_of_a_period_is_not_taken_for_that_of_a_round(name):
    with pytest.raises(
        GossamerError, match=f"'{name}' changes from round to round, and its p belongs to a whole period"
    ):
        ProblemConstants.of(Quadratic.synthetic(nodes=8), topology.get(name, 8))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"nodes": 0}, "at least one node"),
        ({"p": 0.0}, "mixing constant p is 0"),
        ({"p": 1.1}, "must be in"),
        ({"smoothness": 0.0}, "smoothness L is 0"),
        ({"smoothness": math.inf}, "finite"),
        ({"gap": -1.0}, "gap"),
        ({"gap": math.nan}, "gap"),
        ({"sigma2": -1.0}, "sigma2 is a variance"),
    ],
)
def test_bad_input_gets_a_sentence(change, words):
    ProblemConstants(**GOOD)
    with pytest.raises(GossamerError, match=words):
        ProblemConstants(**(GOOD | change))
