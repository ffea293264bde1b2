"""The rates without constants: values by hand, what they depend on, and when they hold."""

import inspect
import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gossamer import GossamerError, topology
from gossamer.theory import ProblemConstants, Rate, rates

CONSTANTS = ProblemConstants(nodes=8, p=0.25, smoothness=2.0, gap=3.0, sigma2=4.0)


def test_total_is_the_sum_of_the_terms():
    assert Rate(noise=1.0, disagreement=2.0, start=4.0).total == 7.0


def test_momentum_tracking_by_hand():
    rate = rates.momentum_tracking(CONSTANTS, rounds=100, beta=0.5)
    assert rate.noise == pytest.approx(math.sqrt(3 * 4 * 2 / 800))
    # r0^2 s^2 L^2/(p^4 R^2 (1-b)) (1 + p b^2/(1-b)) = 9*4*4 * 256 / 10^4 * 2 * 1.125
    assert rate.disagreement == pytest.approx((144 * 256 / 1e4 * 2 * 1.125) ** (1 / 3))
    # L r0/((1-b) p^2 R) sqrt(1 + b^2/((1-b^2)^3 p)) = 6 * 2 * 16/100 * sqrt(1 + 1/(27/64))
    assert rate.start == pytest.approx(1.92 * math.sqrt(1 + 64 / 27))


def test_gradient_tracking_is_the_corollary():
    rate = rates.gradient_tracking(CONSTANTS, rounds=100)
    assert rate == rates.momentum_tracking(CONSTANTS, rounds=100, beta=0.0)
    assert rate.disagreement == pytest.approx((3 * 2 * 2 / (0.0625 * 100)) ** (2 / 3))
    assert rate.start == pytest.approx(2 * 3 / (0.0625 * 100))


def test_gradient_tracking_from_zero_by_hand():
    rate = rates.gradient_tracking_from_zero(CONSTANTS, 1000, smallest_eigenvalue=-0.5, initial_heterogeneity=5.0)
    assert rate.noise == rates.gradient_tracking(CONSTANTS, 1000).noise
    assert rate.disagreement == pytest.approx((3 * 2 * 2 / ((0.5 * 0.75 + 0.25 * math.sqrt(8)) * 1000)) ** (2 / 3))
    assert rate.start == pytest.approx(2 * (3 + 2 * 5) / (0.25 * 0.75 * 1000))


def from_zero(rounds, smallest_eigenvalue=0.0, initial_heterogeneity=0.0):
    return rates.gradient_tracking_from_zero(
        CONSTANTS, rounds, smallest_eigenvalue=smallest_eigenvalue, initial_heterogeneity=initial_heterogeneity
    )


def test_a_positive_smallest_eigenvalue_counts_as_zero():
    below, zero, above = (from_zero(1000, smallest_eigenvalue=smallest).start for smallest in (-0.3, 0.0, 0.3))
    assert above == zero < below


def test_the_rate_from_zero_is_silent_about_the_beginning():
    least = 2 / 0.25 * math.log(200 * (1 + math.log(4)))
    from_zero(least + 1)
    with pytest.raises(GossamerError, match=f"more than {least:.1f} rounds"):
        from_zero(least)


@pytest.mark.parametrize("graph", [topology.ring(8), topology.hypercube(16), topology.star(9)], ids=lambda t: t.name)
def test_the_rate_from_zero_is_tighter_without_initial_heterogeneity(graph):
    constants = ProblemConstants(nodes=graph.n, p=graph.p, smoothness=1.0, gap=1.0, sigma2=1.0)
    tight = rates.gradient_tracking_from_zero(
        constants, 1e5, smallest_eigenvalue=graph.smallest_eigenvalue, initial_heterogeneity=0.0
    )
    loose = rates.gradient_tracking(constants, 1e5)
    assert tight.disagreement <= loose.disagreement
    assert tight.start <= loose.start * (1 + 1e-12)


def test_qg_dsgdm_by_hand():
    rate = rates.qg_dsgdm(CONSTANTS, 100, zeta2=5.0, beta=0.01)
    assert rate.noise == rates.gradient_tracking(CONSTANTS, 100).noise
    assert rate.disagreement == pytest.approx((9 * 4 * 9 / (0.0625 * 1e4)) ** (1 / 3))
    assert rate.start == pytest.approx(0.06 * (4 + 1 / 0.99 + 0.01 / 0.99**3))


def test_qg_dsgdm_holds_only_for_a_small_beta():
    limit = 0.25 / 21.25
    rates.qg_dsgdm(CONSTANTS, 100, zeta2=0.0, beta=limit)
    with pytest.raises(GossamerError, match=r"beta <= p/\(21 \+ p\) = 0.01176, but beta is 0.9"):
        rates.qg_dsgdm(CONSTANTS, 100, zeta2=0.0, beta=0.9)


def test_heterogeneity_enters_qg_dsgdm_and_nothing_of_the_tracking_methods():
    for function in (rates.momentum_tracking, rates.gradient_tracking, ProblemConstants):
        assert not any("zeta" in name or "hetero" in name for name in inspect.signature(function).parameters)
    totals = [rates.qg_dsgdm(CONSTANTS, 100, zeta2=z, beta=0.01).total for z in (0.0, 25.0, 50.0)]
    assert totals[0] < totals[1] < totals[2]


@settings(max_examples=50, deadline=None)
@given(
    p=st.floats(0.01, 1),
    beta=st.floats(0, 0.99),
    rounds=st.integers(1, 10**6),
    sigma2=st.floats(0.01, 10),
    more=st.floats(1.01, 10),
)
def test_how_momentum_tracking_scales(p, beta, rounds, sigma2, more):
    constants = replace(CONSTANTS, p=p, sigma2=sigma2)
    rate = rates.momentum_tracking(constants, rounds, beta)
    later = rates.momentum_tracking(constants, rounds * more, beta)
    assert later.noise == pytest.approx(rate.noise * more**-0.5)
    assert later.disagreement == pytest.approx(rate.disagreement * more ** (-2 / 3))
    assert later.start == pytest.approx(rate.start / more)
    assert rates.momentum_tracking(replace(constants, nodes=32), rounds, beta).noise == pytest.approx(rate.noise / 2)
    assert rate.total >= rates.gradient_tracking(constants, rounds).total
    quiet = rates.momentum_tracking(replace(constants, sigma2=0.0), rounds, beta)
    assert quiet == Rate(0.0, 0.0, rate.start)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: rates.momentum_tracking(CONSTANTS, 100, beta=1.0), "0 <= beta < 1"),
        (lambda: rates.momentum_tracking(CONSTANTS, 0.5, beta=0.9), "from one round on"),
        (lambda: rates.qg_dsgdm(CONSTANTS, 100, zeta2=-1.0, beta=0.0), "zeta2 is a variance"),
        (lambda: from_zero(1e4, smallest_eigenvalue=-1.0), "lazy"),
        (lambda: from_zero(1e4, initial_heterogeneity=-1.0), "initial_heterogeneity is a variance"),
    ],
)
def test_bad_input_gets_a_sentence(call, words):
    with pytest.raises(GossamerError, match=words):
        call()
