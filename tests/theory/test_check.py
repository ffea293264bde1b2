"""Momentum Tracking against its own proof, and broken versions of it that the check must catch."""

from dataclasses import dataclass

import pytest

from gossamer import DSGDm, GossamerError, MomentumTracking, topology
from gossamer.theory import check

BOUND = "measured/bound"
RINGLESS = [topology.complete(8), topology.hypercube(8)]


def bound_rows(report):
    return [row for row in report.rows if row.name.startswith(BOUND)]


def test_identities_and_bound_of_gradient_tracking():
    report = check(betas=[0.0])
    assert report.passed, str(report)
    assert len(report.rows) == 3 * (3 + 2)
    noiseless, noisy = bound_rows(report)[::2], bound_rows(report)[1::2]
    assert all(0.11 <= row.measured <= 0.13 for row in noiseless)
    assert all(0 < row.measured < 1 for row in noisy)


@pytest.mark.parametrize("sigma2", [0.0, 1.0])
@pytest.mark.parametrize("graph", RINGLESS, ids=lambda t: t.name)
def test_identities_and_bound_of_momentum_tracking(graph, sigma2):
    report = check(topologies=[graph], betas=[0.5], sigma2=[sigma2])
    assert report.passed, str(report)
    assert "beta 0.5" in bound_rows(report)[0].name


@pytest.mark.slow
@pytest.mark.parametrize("sigma2", [0.0, 1.0])
def test_the_bound_of_momentum_tracking_on_the_ring(sigma2):
    report = check(topologies=[topology.ring(8)], betas=[0.5], sigma2=[sigma2])
    assert report.passed, str(report)
    (row,) = bound_rows(report)
    assert "rounds" in row.name


def test_the_ratio_does_not_depend_on_heterogeneity():
    ratios = [
        bound_rows(check(topologies=[topology.complete(8)], betas=[0.0], sigma2=[0.0], zeta2=z))[0].measured
        for z in (0.0, 25.0, 2500.0)
    ]
    assert max(ratios) - min(ratios) < 1e-4


@pytest.mark.parametrize("init", ["theorem", "zero"])
@pytest.mark.parametrize("beta", [0.0, 0.5, 0.9])
def test_identities_hold_on_schedules_and_for_both_starts(init, beta):
    report = check(
        method=lambda b: MomentumTracking(b, init),
        topologies=[topology.one_peer_exponential(8), topology.random_matchings(6)],
        betas=[beta],
    )
    assert len(report.rows) == 6
    assert report.passed, str(report)
    assert report.notes == ()


def test_the_zero_start_is_not_held_against_the_bound():
    report = check(method=lambda b: MomentumTracking(b, "zero"), topologies=[topology.complete(8)], betas=[0.0])
    assert bound_rows(report) == []


def test_the_notes_say_what_the_bound_would_need_in_practice():
    report = check(topologies=[topology.ring(8)], betas=[], sigma2=[])
    assert report.rows == ()
    (note,) = report.notes
    assert note.startswith("ring(8) at beta 0.9: the bound admits step sizes up to 4.79e-08")
    assert "e+09 rounds" in note


def test_a_short_run_travels_only_part_of_the_way():
    report = check(topologies=[topology.complete(8)], betas=[0.0], sigma2=[0.0], horizon=0.5)
    (row,) = bound_rows(report)
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
    report = check(method=broken, topologies=[topology.hypercube(8)], betas=[0.5], sigma2=[])
    assert {row.name.split(":")[0] for row in report.failures} == statements


def test_too_slow_a_method_misses_the_expected_ratio():
    report = check(method=DampenedTracking, topologies=[topology.complete(8)], betas=[0.5], sigma2=[0.0])
    assert not bound_rows(report)[0].passed


def test_bad_input_gets_a_sentence():
    with pytest.raises(GossamerError, match="says nothing of DSGDm"):
        check(method=DSGDm, topologies=RINGLESS)
    with pytest.raises(GossamerError, match="horizon is 0"):
        check(horizon=0)
    with pytest.raises(GossamerError, match="zeta2 is a variance"):
        check(zeta2=-1.0)
