"""The report's first sentence says what the seeds support, and no more."""

import pytest

from gossamer._common.formatting import MetricFacts
from gossamer.report.conclusion import NO_COMMON_SEED, ONE_SEED, Conclusion, Contender, conclude, summarize, t_quantile

ACCURACY = MetricFacts()
MAE = MetricFacts("mae", higher_is_better=False, percent=False)


def over_seeds(name: str, *figures: float) -> Contender:
    return Contender(name, dict(enumerate(figures)))


TRACKING = over_seeds("Momentum Tracking", 0.82, 0.83, 0.84)
DSGDM = over_seeds("DSGDm", 0.55, 0.57, 0.56)


def test_a_clear_lead():
    found = conclude([DSGDM, TRACKING], ACCURACY)
    assert found == Conclusion(
        "Momentum Tracking has the highest mean test accuracy, 83.0 %, and is ahead of DSGDm by 27.0 points over three "
        "seeds.",
        "Momentum Tracking",
        clear=True,
    )


def test_a_tie_is_called_one():
    close = over_seeds("QG-DSGDm", 0.84, 0.82, 0.825)
    found = conclude([TRACKING, close], ACCURACY)
    assert not found.clear
    assert "but QG-DSGDm cannot be told apart from it over three seeds." in found.sentence
    assert "ahead" not in found.sentence
    some = conclude([TRACKING, close, DSGDM], ACCURACY)
    assert not some.clear
    assert "ahead of DSGDm by 27.0 points over three seeds; QG-DSGDm cannot be told apart from it." in some.sentence


def test_pairs_are_told_apart_where_seeds_differ_more_than_methods():
    """What all methods find hard with a seed is no reason for doubt: the differences count."""
    better, worse = over_seeds("A", 0.50, 0.70, 0.90), over_seeds("B", 0.48, 0.681, 0.879)
    assert conclude([worse, better], ACCURACY).clear
    shuffled = over_seeds("B", 0.879, 0.48, 0.681)
    assert not conclude([shuffled, better], ACCURACY).clear


def test_one_seed_supports_nothing():
    found = conclude([over_seeds("A", 0.9), over_seeds("B", 0.2)], ACCURACY)
    assert (found.best, found.clear, found.warning) == ("A", False, ONE_SEED)
    assert "90.0 %, 70.0 points from B, which does not tell methods apart." in found.sentence
    assert "ahead" not in found.sentence
    apart = conclude([Contender("A", {0: 0.9, 1: 0.9}), Contender("B", {2: 0.2, 3: 0.2})], ACCURACY)
    assert (apart.clear, apart.warning) == (False, NO_COMMON_SEED)


def test_only_common_seeds_count():
    lucky = Contender("B", {0: 0.6, 1: 0.62, 2: 0.61, 9: 1.0, 8: 1.0, 7: 1.0})
    found = conclude([lucky, TRACKING], ACCURACY)
    assert found.best == "Momentum Tracking"
    assert "by 22.0 points over three seeds" in found.sentence


def test_a_metric_of_which_less_is_better():
    found = conclude([over_seeds("A", 2.0, 2.1, 2.2), over_seeds("B", 1.0, 1.1, 1.21)], MAE)
    assert found.clear
    assert found.sentence == "B has the lowest mean test mae, 1.103, and is ahead of A by 0.997 over three seeds."


def test_methods_that_diverged_are_named_and_beaten_by_nobody():
    lost = Contender("DSGD", missing="diverged")
    assert conclude([TRACKING, DSGDM, lost], ACCURACY).sentence.endswith("over three seeds; DSGD diverged.")
    only = conclude([TRACKING, lost, Contender("D²", missing="diverged")], ACCURACY)
    assert not only.clear
    assert only.sentence == (
        "Momentum Tracking reaches a test accuracy of 83.0 % over three seeds; DSGD and D² diverged."
    )
    none = conclude([lost, Contender("A", missing="unfinished")], ACCURACY)
    assert none == Conclusion("There is no figure to compare yet: DSGD diverged; A is unfinished.")


def test_one_method_is_compared_with_nothing():
    found = conclude([TRACKING], ACCURACY)
    assert (found.clear, found.warning) == (False, "")
    assert found.sentence == (
        "Momentum Tracking reaches a test accuracy of 83.0 % over three seeds, compared with no other method."
    )
    assert "with one seed, compared" in conclude([over_seeds("A", 0.5)], ACCURACY).sentence


def test_many_methods_still_make_a_short_sentence():
    others = [over_seeds(f"M{k}", *(0.6 - 0.05 * k + 0.01 * s for s in range(3))) for k in range(5)]
    found = conclude([*others, TRACKING], ACCURACY)
    assert "ahead of five methods, from M0 by 22.0 points to M4 by 42.0 points over three seeds." in found.sentence


def test_several_settings_are_summed_up():
    clear, tie = (
        conclude([TRACKING, DSGDM], ACCURACY),
        conclude([TRACKING, over_seeds("B", 0.83, 0.82, 0.85)], ACCURACY),
    )
    assert summarize({"k=2": clear}) == clear.sentence
    assert summarize({"k=1": clear, "k=2": clear, "iid": tie}) == (
        "Of 3 settings, Momentum Tracking is ahead of every other method in 2 (k=1, k=2). "
        "In 1 the best cannot be told apart from all others."
    )
    assert summarize({"a": tie, "b": tie}) == (
        "In none of 2 settings is a method ahead of every other one. The best mean has B in 2."
    )


@pytest.mark.parametrize(
    ("freedom", "value"), [(1, 12.706), (9, 2.262), (20, 2.086), (21, 2.080), (30, 2.042), (100, 1.984)]
)
def test_the_quantiles_are_those_of_the_books(freedom, value):
    assert t_quantile(freedom) == pytest.approx(value, abs=1.5e-3)
