"""Momentum Tracking against its own proof, and broken versions of it that the check must catch."""

import math
from dataclasses import dataclass

import pytest

from gossamer import DSGDm, GossamerError, MomentumTracking, topology
from gossamer.theory import ProofCheck, Statement, check_proof

BOUND = "measured/bound"
SHORT = 2.0  # a third of the usual length: 98 % of the way to the optimum
RINGLESS = [topology.complete(8), topology.hypercube(8)]


def bound_statements(result):
    return [statement for statement in result.statements if statement.name.startswith(BOUND)]


def test_identities_and_bound_of_gradient_tracking():
    result = check_proof(betas=[0.0], horizon=SHORT)
    assert result.passed, str(result)
    assert len(result.statements) == 3 * (3 + 2)
    noiseless, noisy = bound_statements(result)[::2], bound_statements(result)[1::2]
    assert all(0.10 <= row.measured <= 0.13 for row in noiseless)
    assert all(0 < row.measured < 1 for row in noisy)


@pytest.mark.parametrize("sigma2", [0.0, pytest.param(1.0, marks=pytest.mark.slow)])
@pytest.mark.parametrize("graph", RINGLESS, ids=lambda t: t.name)
def test_identities_and_bound_of_momentum_tracking(graph, sigma2):
    result = check_proof(topologies=[graph], betas=[0.5], sigma2=[sigma2], horizon=SHORT)
    assert result.passed, str(result)
    assert "beta 0.5" in bound_statements(result)[0].name


@pytest.mark.slow
@pytest.mark.parametrize("sigma2", [0.0, 1.0])
def test_the_bound_of_momentum_tracking_on_the_ring(sigma2):
    result = check_proof(topologies=[topology.ring(8)], betas=[0.5], sigma2=[sigma2])
    assert result.passed, str(result)
    (row,) = bound_statements(result)
    assert "rounds" in row.name


def test_the_ratio_does_not_depend_on_heterogeneity():
    ratios = [
        bound_statements(
            check_proof(topologies=[topology.complete(8)], betas=[0.0], sigma2=[0.0], zeta2=z, horizon=SHORT)
        )[0].measured
        for z in (0.0, 25.0, 2500.0)
    ]
    assert max(ratios) - min(ratios) < 1e-4


@pytest.mark.parametrize("init", ["theorem", "zero"])
@pytest.mark.parametrize("beta", [0.0, 0.5, 0.9])
def test_identities_hold_on_schedules_and_for_both_starts(init, beta):
    result = check_proof(
        method=lambda b: MomentumTracking(b, init),
        topologies=[topology.one_peer_exponential(8), topology.random_matchings(6)],
        betas=[beta],
    )
    assert len(result.statements) == 6
    assert result.passed, str(result)
    assert result.notes == ()


def test_the_zero_start_is_not_held_against_the_bound():
    result = check_proof(method=lambda b: MomentumTracking(b, "zero"), topologies=[topology.complete(8)], betas=[0.0])
    assert bound_statements(result) == []


def test_the_notes_say_what_the_bound_would_need_in_practice():
    result = check_proof(topologies=[topology.ring(8)], betas=[], sigma2=[])
    assert result.statements == ()
    (note,) = result.notes
    assert note.startswith("ring(8) at beta 0.9: the bound admits step sizes up to 4.79e-08")
    assert "e+09 rounds" in note


def test_a_short_run_travels_only_part_of_the_way():
    result = check_proof(topologies=[topology.complete(8)], betas=[0.0], sigma2=[0.0], horizon=0.5)
    (row,) = bound_statements(result)
    assert row.passed
    assert row.most < 0.1


@dataclass(frozen=True, eq=False)
class LeakyTracking(MomentumTracking):
    """A mistake: the tracked average loses a little in every round."""

    def step(self, state, x, grad, lr, net, round):
        super().step(state, x, grad, lr, net, round)
        state.mixed.wait()[1].mul_(1 - 1e-6)


@dataclass(frozen=True, eq=False)
class DampenedTracking(MomentumTracking):
    """A mistake: the gradient enters with the weight 1 - beta, so the steps are too short."""

    def step(self, state, x, grad, lr, net, round):
        super().step(state, x, grad.mul_(1 - self.beta), lr, net, round)


@pytest.mark.parametrize(
    ("broken", "statements"),
    [
        (LeakyTracking, {"mean c = 0", "xbar' = xbar - eta ubar", "z' = z - eta/(1-beta) mean g"}),
        (DampenedTracking, {"z' = z - eta/(1-beta) mean g"}),
    ],
)
def test_a_broken_method_is_caught(broken, statements):
    result = check_proof(method=broken, topologies=[topology.hypercube(8)], betas=[0.5], sigma2=[])
    assert {row.name.split(":")[0] for row in result.failures} == statements


def test_too_slow_a_method_misses_the_expected_ratio():
    result = check_proof(
        method=DampenedTracking, topologies=[topology.complete(8)], betas=[0.5], sigma2=[0.0], horizon=SHORT
    )
    assert not bound_statements(result)[0].passed


def test_bad_input_gets_a_sentence():
    with pytest.raises(GossamerError, match="does not cover DSGDm"):
        check_proof(method=DSGDm, topologies=RINGLESS)
    with pytest.raises(GossamerError, match="horizon is 0"):
        check_proof(horizon=0)
    with pytest.raises(GossamerError, match="zeta2 is a variance"):
        check_proof(zeta2=-1.0)


GOOD, BAD = Statement("good", 0.5, 0.0, 1.0), Statement("a longer name", 2.0, 0.0, 1.0)


def test_a_statement_passes_between_its_limits():
    assert GOOD.passed
    assert Statement("edge", 1.0, 0.0, 1.0).passed
    assert not BAD.passed
    assert not Statement("below", -0.1, 0.0, 1.0).passed
    assert not Statement("nan", math.nan, 0.0, 1.0).passed


def test_a_check_passes_when_all_statements_do():
    assert ProofCheck((GOOD,)).passed
    result = ProofCheck((GOOD, BAD))
    assert not result.passed
    assert result.failures == (BAD,)


def test_a_check_prints_as_a_plain_table():
    assert str(ProofCheck((GOOD, BAD), ("A note.",))).splitlines() == [
        "statement      measured  allowed          verdict",
        "good           0.5       between 0 and 1  holds",
        "a longer name  2         between 0 and 1  FAILS",
        "A note.",
    ]
