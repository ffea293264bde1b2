"""The explicit bound: values by hand, the step sizes it admits, the rounds it needs."""

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gossamer import GossamerError, topology
from gossamer.problems import Quadratic
from gossamer.theory import Bound, ProblemConstants, bound, largest_step, rounds_needed

CONSTANTS = ProblemConstants(nodes=8, p=0.5, smoothness=2.0, gap=3.0, sigma2=4.0)


def test_largest_step_by_hand():
    assert largest_step(1.0, 0.0, 1.0) == pytest.approx(1 / (16 * math.sqrt(282)))
    # beta = 1/2: (1-b)^2 = 1/4, (1-b^2)^3 = 27/64, so 7836/4 / (27/64 p) = 7836 * 16/27 / p
    assert largest_step(0.5, 0.5, 2.0) == pytest.approx(0.25 * 0.25 / (32 * math.sqrt(7836 * 32 / 27 + 282)))


def test_on_the_papers_synthetic_problem_the_largest_step_is_tiny():
    problem = Quadratic.synthetic()
    assert largest_step(topology.ring(25).p, 0.9, problem.smoothness) == pytest.approx(9e-12, rel=0.05)


def test_the_terms_by_hand():
    lr = 1e-5
    got = bound(CONSTANTS, rounds=99, lr=lr, beta=0.5)
    assert got.start == pytest.approx(4 * 0.5 * 3 / (lr * 100))
    assert got.noise == pytest.approx(2 * 2 * 4 * lr / (8 * 0.5))
    t = 2 * 0.25 * 0.5 / 0.75 + 4
    spread = 40 * t / 0.25 * (10 + 58 + 3456) + 4 * 0.25 / (8 * 0.5)
    assert got.disagreement == pytest.approx(4 * 8 * spread * 4 * lr**2)
    assert got.total == pytest.approx(got.start + got.noise + got.disagreement)


def test_without_noise_only_the_start_remains():
    quiet = bound(replace(CONSTANTS, sigma2=0.0), rounds=9, lr=1e-5, beta=0.5)
    assert quiet == Bound(start=quiet.start, noise=0.0, disagreement=0.0)
    assert quiet.start == pytest.approx(4 * 0.5 * 3 / 1e-4)


def test_a_step_size_beyond_the_proof_is_refused():
    limit = largest_step(CONSTANTS.p, 0.5, CONSTANTS.smoothness)
    bound(CONSTANTS, rounds=1, lr=limit, beta=0.5)
    with pytest.raises(GossamerError, match="proven for step sizes up to"):
        bound(CONSTANTS, rounds=1, lr=limit * 1.0001, beta=0.5)


@settings(max_examples=50, deadline=None)
@given(p=st.floats(0.01, 1), beta=st.floats(0, 0.95), smoothness=st.floats(0.1, 100))
def test_the_largest_step_satisfies_every_condition_of_the_proof(p, beta, smoothness):
    """The conditions that the proof collects, each on its own."""
    eta = largest_step(p, beta, smoothness)
    t = 2 * beta**2 * p / (1 - beta**2) + 4
    a = 648 / (1 - p / t - 2 * beta**2 / (1 + beta**2))
    conditions = [
        (1 - beta) / (4 * smoothness),
        p / (8 * smoothness * math.sqrt(324 + 2 * a * beta**2 / (1 - beta**2))),
        (1 - beta) * p**2 / (2 * smoothness * math.sqrt(t * (5 * p**2 + 432))),
        (1 - beta) * p / (8 * smoothness * math.sqrt(5 * t)),
        (1 - beta) ** 2 / (2 * math.sqrt(2) * smoothness),
    ]
    assert eta <= min(conditions) * (1 + 1e-12)


@pytest.mark.parametrize("sigma2", [0.0, 1e-3])
@pytest.mark.parametrize("beta", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("target", [0.1, 7.3])
def test_rounds_needed_is_the_smallest_number(sigma2, beta, target):
    constants = replace(CONSTANTS, sigma2=sigma2)
    lr = largest_step(constants.p, beta, constants.smoothness)
    rounds = rounds_needed(target, constants, beta=beta)
    assert bound(constants, rounds=rounds, lr=lr, beta=beta).total <= target * (1 + 1e-9)
    assert bound(constants, rounds=rounds - 1, lr=lr, beta=beta).total > target * (1 - 1e-9)
    assert rounds_needed(target, constants, beta=beta, lr=lr / 2) > rounds


def test_an_easy_target_needs_one_round():
    assert rounds_needed(1e9, CONSTANTS, beta=0.5) == 1


def test_a_target_below_the_noise_is_refused_and_a_smaller_step_reaches_it():
    noisy = bound(CONSTANTS, rounds=1, lr=largest_step(CONSTANTS.p, 0.0, CONSTANTS.smoothness), beta=0.0)
    target = (noisy.noise + noisy.disagreement) / 2
    with pytest.raises(GossamerError, match="the noise alone"):
        rounds_needed(target, CONSTANTS, beta=0.0)
    assert rounds_needed(target, CONSTANTS, beta=0.0, lr=1e-6) > 1


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: largest_step(0.0, 0.5, 1.0), "mixing constant"),
        (lambda: largest_step(0.5, 1.0, 1.0), "0 <= beta < 1"),
        (lambda: largest_step(0.5, 0.5, -1.0), "smoothness"),
        (lambda: bound(CONSTANTS, rounds=0, lr=1e-6, beta=0.5), "one round"),
        (lambda: bound(CONSTANTS, rounds=1, lr=0.0, beta=0.5), "step size is 0"),
        (lambda: bound(CONSTANTS, rounds=1, lr=math.nan, beta=0.5), "step size is nan"),
    ],
)
def test_bad_input_gets_a_sentence(call, words):
    with pytest.raises(GossamerError, match=words):
        call()
