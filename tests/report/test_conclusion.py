"""The report's first sentence says what the seeds support, and no more."""

import pytest

from gossamer._common.formatting import MetricFacts
from gossamer.report.conclusion import (
    NO_COMMON_SEED,
    ONE_SEED,
    Conclusion,
    Contender,
    Setting,
    compare_settings,
    conclude,
    summarize,
    t_quantile,
)

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
    assert (only.clear, only.alone) == (False, False)
    assert only.sentence == (
        "Momentum Tracking reaches a test accuracy of 83.0 % over three seeds; DSGD and D² diverged."
    )
    none = conclude([lost, Contender("A", missing="unfinished")], ACCURACY)
    assert none == Conclusion("There is no figure to compare yet: DSGD diverged; A is unfinished.")


def test_one_method_is_compared_with_nothing():
    found = conclude([TRACKING], ACCURACY)
    assert (found.clear, found.alone, found.warning) == (False, True, "")
    assert found.sentence == (
        "Momentum Tracking reaches a test accuracy of 83.0 % over three seeds, compared with no other method."
    )
    assert "with one seed, compared" in conclude([over_seeds("A", 0.5)], ACCURACY).sentence
    assert "a test mae of 0.5 (lower is better) with one seed" in conclude([over_seeds("A", 0.5)], MAE).sentence


def test_many_methods_still_make_a_short_sentence():
    others = [over_seeds(f"M{k}", *(0.6 - 0.05 * k + 0.01 * s for s in range(3))) for k in range(5)]
    found = conclude([*others, TRACKING], ACCURACY)
    assert "ahead of five methods, from M0 by 22.0 points to M4 by 42.0 points over three seeds." in found.sentence


def test_several_settings_are_summed_up():
    clear, tie = (
        conclude([TRACKING, DSGDM], ACCURACY),
        conclude([TRACKING, over_seeds("B", 0.83, 0.82, 0.85)], ACCURACY),
    )
    measured = ACCURACY.described
    assert measured == "accuracy, higher is better"
    assert summarize({"k=2": clear}, measured) == clear.sentence
    assert summarize({"k=1": clear, "k=2": clear, "iid": tie}, measured) == (
        "Of 3 settings (accuracy, higher is better), Momentum Tracking is ahead of every other method in 2 (k=1, k=2). "
        "In 1 no method is ahead of every other one."
    )
    assert summarize({"a": tie, "b": tie, "c": conclude([DSGDM], ACCURACY)}, measured) == (
        "In none of 3 settings (accuracy, higher is better) is a method ahead of every other one. Best by the "
        "mean: B in 2."
    ), "a method that was compared with no other one is not the best of anything"
    missing = conclude([Contender("A", missing="diverged")], ACCURACY)
    assert summarize({"a": missing, "b": missing}, measured).endswith("ahead of every other one.")


def settings(**levels: list[Contender]) -> list[Setting]:
    return [Setting(name, contenders) for name, contenders in levels.items()]


def test_settings_that_differ_in_one_thing_tell_who_depends_on_it():
    middle = over_seeds("QG-DSGDm", 0.98, 0.99, 0.98), over_seeds("QG-DSGDm", 0.90, 0.92, 0.91)
    easy = [over_seeds("DSGDm", 0.98, 0.99, 0.985), over_seeds("Momentum Tracking", 0.98, 0.99, 0.985), middle[0]]
    hard = [over_seeds("DSGDm", 0.70, 0.72, 0.71), over_seeds("Momentum Tracking", 0.96, 0.98, 0.97), middle[1]]
    # The order of the settings does not matter: a sentence goes from the better one to the worse one.
    for given in (settings(equal=easy, different=hard), settings(different=hard, equal=easy)):
        assert compare_settings(given, ACCURACY) == (
            "From equal to different, the test accuracy of DSGDm falls from 98.5 to 71.0 % (by 27.5 points over three "
            "seeds), that of Momentum Tracking from 98.5 to 97.0 % (by 1.5 points). With different, "
            f"{conclude(hard, ACCURACY).sentence}"
        )


def test_a_change_that_the_seeds_do_not_support_is_not_called_one():
    easy = [over_seeds("A", 0.98, 0.96, 0.97), over_seeds("B", 0.97, 0.98, 0.96)]
    steady = over_seeds("B", 0.98, 0.95, 0.97)
    found = compare_settings(settings(equal=easy, different=[over_seeds("A", 0.6, 0.62, 0.61), steady]), ACCURACY)
    assert "(by 36.0 points over three seeds), that of B from 97.0 to 96.7 %, which may be chance." in found
    both = compare_settings(settings(equal=easy, different=[over_seeds("A", 0.96, 0.98, 0.96), steady]), ACCURACY)
    assert both.startswith(
        "From equal to different, no method's test accuracy changes by more than chance explains over"
    )
    alike = compare_settings(settings(equal=easy, different=[over_seeds(n, 0.6, 0.6, 0.6) for n in "AB"]), ACCURACY)
    assert "and which of the two depends more on it cannot be told." in alike
    one = compare_settings(settings(equal=[over_seeds("A", 0.9)], different=[over_seeds("A", 0.2)]), ACCURACY)
    assert one.startswith("From equal to different, the test accuracy of A falls from 90.0 to 20.0 %, with one seed, ")


def test_a_change_that_the_rounded_figures_do_not_show_is_none():
    before, after = (0.31, 0.32, 0.33), (0.31000001, 0.32000001, 0.33000001)
    given = settings(simulation=[over_seeds("A", *before)], processes=[over_seeds("A", *after)])
    assert compare_settings(given, MAE).startswith(
        "From simulation to processes, no method's test mae changes over three seeds. With processes, A reaches "
    )
    given = settings(simulation=[over_seeds("A", 0.31)], processes=[over_seeds("A", 0.31000001)])
    assert compare_settings(given, MAE).startswith("From simulation to processes, no method's test mae changes. With ")


def test_a_change_of_a_metric_of_which_less_is_better():
    easy = [over_seeds("A", 1.0, 1.1, 1.2), over_seeds("B", 1.0, 1.1, 1.2)]
    hard = [over_seeds("A", 2.0, 2.1, 2.3), over_seeds("B", 0.9, 1.0, 1.11)]
    found = compare_settings(settings(hard=hard, easy=easy), MAE)
    assert found.startswith(
        "From easy to hard, the test mae of A rises from 1.1 to 2.133 (by 1.03 over three seeds), that of B falls from "
        "1.1 to 1.003 (by 0.0967). With hard, B has the lowest mean test mae"
    )


def test_of_more_settings_the_best_and_the_worst_are_compared():
    given = settings(
        a=[over_seeds("A", 0.9, 0.91, 0.92), over_seeds("B", 0.9, 0.92, 0.91)],
        b=[over_seeds("A", 0.8, 0.81, 0.82), over_seeds("B", 0.5, 0.52, 0.51)],
        c=[over_seeds("A", 0.85, 0.86, 0.87), over_seeds("B", 0.6, 0.62, 0.61)],
    )
    assert compare_settings(given, ACCURACY) == (
        "Of 3 settings (accuracy, higher is better), A is ahead of every other method in 2 (b, c). In 1 no method is "
        "ahead of every other one. On average the methods do best with a and worst with b: from the one to the other, "
        "the test accuracy of B falls from 91.0 to 51.0 % (by 40.0 points over three seeds), that of A from 91.0 to "
        "81.0 % (by 10.0 points)."
    )


def test_settings_without_common_methods_or_seeds_are_summed_up_as_before():
    lost = Contender("DSGDm", missing="diverged")
    apart = settings(a=[TRACKING], b=[DSGDM])
    found = {s.name: conclude(s.contenders, ACCURACY) for s in apart}
    assert compare_settings(apart, ACCURACY) == summarize(found, ACCURACY.described)
    found = compare_settings(
        settings(a=[TRACKING, DSGDM], b=[over_seeds(TRACKING.name, 0.7, 0.71, 0.72), lost]), ACCURACY
    )
    assert found.startswith(
        "From a to b, the test accuracy of Momentum Tracking falls from 83.0 to 71.0 % (by 12.0 points"
    )
    assert found.endswith("over three seeds; DSGDm diverged.")


@pytest.mark.parametrize(
    ("freedom", "value"), [(1, 12.706), (9, 2.262), (20, 2.086), (21, 2.080), (30, 2.042), (100, 1.984)]
)
def test_the_quantiles_are_those_of_the_books(freedom, value):
    assert t_quantile(freedom) == pytest.approx(value, abs=1.5e-3)
