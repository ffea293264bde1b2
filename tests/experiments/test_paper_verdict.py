"""Measured beside published: differences, rankings, averages, warnings."""

import json
from dataclasses import replace

import pytest

from gossamer.experiments.experiment import Experiment
from gossamer.experiments.grid_filter import part_of
from gossamer.experiments.paper import recipes
from gossamer.experiments.paper.recipes import PaperPlan, PlannedRun
from gossamer.experiments.paper.verdict import PaperLine, PaperPanel, Verdict, judge, measure, published, rank
from gossamer.experiments.selection import select
from gossamer.experiments.store import StoredRun, write_json


def line(label, mean, paper, std=0.0, diverged=False):
    return PaperLine(
        method=label, label=label, mean=mean, std=None, lr=None, seeds=1, diverged=diverged, paper_mean=paper,
        paper_std=std,
    )  # fmt: skip


def store(directory, experiment: Experiment, accuracy: float | None, status="done") -> StoredRun:
    """A run on disk with the given final accuracy."""
    path = directory / experiment.id
    about = {"id": experiment.id, "cell": experiment.cell, "label": experiment.label}
    write_json(path / "run.json", {**about, "experiment": experiment.to_dict()})
    if accuracy is not None:
        end = {"round": experiment.rounds or 1, "epoch": experiment.epochs}
        row = {**end, "accuracy": accuracy, "validation_accuracy": accuracy, "seconds": 7.4}
        (path / "metrics.jsonl").write_text(json.dumps(row) + "\n")
    if status != "unfinished":
        write_json(
            path / "done.json", {"status": status, **({} if status == "done" else {"reason": "the loss is infinite"})}
        )
    return StoredRun(path)


def planned(name="table8", scale="quick", lrs=None, seeds=None, **wanted):
    grid = recipes.read(name, scale, lrs=lrs, seeds=seeds)
    grid = part_of(grid, {k: [v] for k, v in wanted.items()}) if wanted else grid
    return [PlannedRun(e, e) for e in grid.experiments]


class TestRanking:
    def test_the_same_order(self):
        found = rank([line("a", 90, 80), line("b", 70, 75), line("c", 60, 61)])
        assert (found.same_order, found.same_winner, found.tau) == (True, True, 1.0)
        assert found.sentence == "ranking: same order as in the paper"

    def test_the_same_winner(self):
        found = rank([line("a", 90, 80), line("b", 70, 61), line("c", 60, 75)])
        assert (found.same_order, found.same_winner) == (False, True)
        assert (found.pairs, found.agreeing) == (3, 2)
        assert found.tau == pytest.approx(1 / 3)
        assert "same winner; 2 of 3 pairs in the paper's order, tau 0.33" in found.sentence

    def test_another_winner_is_named(self):
        found = rank([line("a", 60, 80), line("b", 70, 61)])
        assert found.tau == -1
        assert "winner b (paper: a)" in found.sentence

    def test_pairs_that_the_paper_prints_alike_do_not_count_and_both_may_win(self):
        found = rank([line("a", 60, 80), line("b", 70, 80), line("c", 50, 70)])
        assert (found.pairs, found.same_order, found.same_winner) == (2, True, True)
        assert found.paper_best == ("a", "b")

    def test_measured_ties_do_not_agree(self):
        found = rank([line("a", 60, 80), line("b", 60, 70)])
        assert (found.agreeing, found.tau, found.same_order) == (0, 0.0, False)

    def test_pairs_further_apart_than_the_standard_deviations_are_clear(self):
        found = rank([line("a", 90, 80.0, 1.0), line("b", 70, 78.5, 1.0), line("c", 80, 60, 5.0)])
        assert (found.pairs, found.agreeing) == (3, 2)
        assert (found.clear_pairs, found.clear_agreeing) == (2, 1)

    def test_what_diverged_is_last_and_what_was_not_measured_is_left_out(self):
        found = rank([line("a", None, 80, diverged=True), line("b", 70, 75), line("c", None, 90)])
        assert (found.compared, found.methods, found.agreeing, found.pairs) == (2, 3, 0, 1)
        assert found.sentence.startswith("ranking of 2 of 3 methods: winner b")

    def test_a_pair_is_clear_only_if_both_standard_deviations_are_known(self):
        found = rank([line("a", 90, 80, 1.0), line("b", 70, 60, None), line("c", 60, 50, 1.0)])
        assert (found.pairs, found.clear_pairs, found.clear_agreeing) == (3, 1, 1)

    def test_nobody_wins_if_every_method_diverged(self):
        found = rank([line("a", None, 80, diverged=True), line("b", None, 70, diverged=True)])
        assert (found.best, found.same_winner, found.tau) == ("", False, 0.0)
        assert found.sentence == "ranking: no winner, every method diverged"

    def test_nothing_to_compare(self):
        assert (
            rank([]).sentence == rank([line("a", 1, 2)]).sentence == "ranking: no two methods to compare with the paper"
        )
        assert not rank([]).same_order
        assert not rank([]).same_winner


class TestJudgement:
    def test_measured_figures_stand_beside_the_papers(self, tmp_path):
        accuracy = {"momentum-tracking": 0.72, "abm": 0.70, "gtadam": 0.715}
        runs = [store(tmp_path, p.made, accuracy[p.made.method] + 0.01 * p.made.seed) for p in planned(seeds=[0, 1, 2])]
        verdict = judge(recipes.about("table8"), planned(seeds=[0, 1, 2]), select(runs))
        assert [p.title for p in verdict.panels] == ["k = 10", "k = 4"]
        first = verdict.panels[0].lines[0]
        assert (first.label, first.seeds, first.lr) == ("Momentum Tracking", 3, 0.005)
        assert first.mean == pytest.approx(73.0)
        assert first.std == pytest.approx(1.0)
        assert (first.paper_mean, first.paper_std) == (72.9, 0.59)
        assert first.difference == pytest.approx(0.1)
        assert [p.ranking.same_order for p in verdict.panels] == [True, False]
        assert verdict.sentence.startswith("Rankings in 2 panels: same winner in 1, same order in 1; 4 of 6 pairs")
        assert verdict.warnings == ["everywhere: only one step size was tried (0.005)"]
        assert verdict.averages == ()

    def test_the_step_size_is_chosen_and_an_edge_is_warned_of(self, tmp_path):
        plans = planned(lrs=[0.01, 0.005], k="4")
        runs = [store(tmp_path, p.made, 0.5 + 10 * p.made.lr) for p in plans]
        verdict = judge(recipes.about("table8"), plans, select(runs))
        (panel,) = verdict.panels
        assert [line.lr for line in panel.lines] == [0.01] * 3
        assert "a larger one may be better still" in verdict.warnings[0]

    def test_missing_unfinished_and_diverged_runs_are_said(self, tmp_path):
        plans = planned(k="4")
        runs = [store(tmp_path, plans[0].made, 0.5, "unfinished"), store(tmp_path, plans[1].made, None, "diverged")]
        verdict = judge(recipes.about("table8"), plans, select(runs))
        lines = verdict.panels[0].lines
        assert [(line.mean, line.diverged, line.difference) for line in lines] == [
            (None, False, None), (None, True, None), (None, False, None)
        ]  # fmt: skip
        text = "\n".join(verdict.warnings)
        assert "Momentum Tracking: 1 run not finished yet" in text
        assert "ABm: every step size tried diverged" in text
        assert "GTAdam: no run has been made" in text
        assert verdict.sentence == "Nothing to rank yet."
        json.dumps(verdict.to_json(), allow_nan=False)

    def test_averages_over_the_datasets_are_compared_too(self, tmp_path):
        plans = planned("table2", k="4")
        runs = [store(tmp_path, p.made, 0.6) for p in plans]
        verdict = judge(recipes.about("table2"), plans, select(runs))
        (panel,) = verdict.averages
        assert panel.title == "average of fashion-mnist, svhn, cifar-10, k = 4"
        last = panel.lines[-1]
        assert last.label == "Momentum Tracking"
        assert last.mean == pytest.approx(60.0)
        assert last.paper_mean == pytest.approx((86.8 + 91.7 + 70.7) / 3)

    def test_datasets_that_are_not_complete_are_left_out_of_the_average(self, tmp_path):
        plans = planned("table2", k="4")
        runs = [store(tmp_path, p.made, 0.6) for p in plans if (p.made.dataset, p.made.method) != ("svhn", "dsgd")]
        verdict = judge(recipes.about("table2"), plans, select(runs))
        assert [p.title for p in verdict.averages] == ["average of fashion-mnist, cifar-10, k = 4"]
        one = planned("table2", k="4", dataset="svhn")
        assert judge(recipes.about("table2"), one, select(runs)).averages == ()

    def test_stand_ins_are_named_and_not_averaged(self, tmp_path):
        digits = Experiment(dataset="digits", rounds=5)
        asked = [p.asked for p in planned("table2", "smoke", method="momentum-tracking")]
        run = store(tmp_path, digits, 0.9)
        verdict = judge(recipes.about("table2"), [PlannedRun(e, digits) for e in asked], select([run]))
        assert [p.title for p in verdict.panels] == [
            f"{name}, k = 4 (digits in place of {name})" for name in ("fashion-mnist", "svhn", "cifar-10")
        ]
        assert {(p.lines[0].paper_mean, p.lines[0].difference) for p in verdict.panels} == {(None, None)}
        assert {p.sentence for p in verdict.panels} == {"no comparison: digits stand in"}
        assert verdict.sentence == "No comparison: digits stand in."
        assert verdict.averages == ()
        told = verdict.to_json()["panels"][0]
        assert (told["ranking"]["pairs"], told["ranking"]["sentence"]) == (0, "no comparison: digits stand in")

    def test_a_stand_in_for_the_model_is_no_comparison_either(self):
        asked = [p.asked for p in planned("table3", k="4", model="vgg-11")]
        verdict = judge(recipes.about("table3"), [PlannedRun(e, replace(e, model="lenet")) for e in asked], [])
        (panel,) = verdict.panels
        assert "lenet in place of vgg-11" in panel.title
        assert panel.sentence == "no comparison: lenet stands in"

    def test_methods_with_other_seeds_are_ranked_on_the_common_ones(self, tmp_path):
        plans = planned(seeds=[0, 1], k="4")
        accuracy = {"momentum-tracking": (0.70, 0.60), "abm": (0.69, 0.69), "gtadam": (0.60, 0.60)}
        runs = [
            store(tmp_path, p.made, accuracy[p.made.method][p.made.seed])
            for p in plans
            if (p.made.method, p.made.seed) != ("abm", 1)
        ]
        verdict = judge(recipes.about("table8"), plans, select(runs))
        (panel,) = verdict.panels
        assert [line.mean for line in panel.lines] == pytest.approx([65.0, 69.0, 60.0])
        assert panel.ranking.best == "Momentum Tracking"
        assert verdict.warnings[-1] == (
            "k = 4: the methods have different seeds; they are ranked on those that all have (0), not by their means"
        )

    def test_averages_are_ranked_by_what_the_panels_are_ranked_by(self, tmp_path):
        plans = planned("table2", seeds=[0, 1], k="4", method="dsgd") + planned("table2", k="4", method="dsgdm")
        runs = [store(tmp_path, p.made, 0.6 + (0.2 * p.made.seed if p.made.method == "dsgd" else 0.05)) for p in plans]
        verdict = judge(recipes.about("table2"), plans, select(runs))
        (panel,) = verdict.averages
        assert [line.mean for line in panel.lines] == pytest.approx([70.0, 65.0])
        assert panel.ranking.best == "DSGDm"
        assert (panel.ranking.pairs, panel.ranking.clear_pairs) == (1, 0), "an average has no standard deviation"

    def test_the_summary_leaves_clear_pairs_out_if_there_are_none(self):
        unclear = Verdict((PaperPanel("k = 4", (line("a", 90, 80.0, 5.0), line("b", 70, 79.0, 5.0))),))
        assert unclear.sentence == (
            "Rankings in 1 panel: same winner in 1, same order in 1; 1 of 1 pairs of methods in the paper's order."
        )

    @pytest.mark.parametrize(("other", "diverged"), [("diverged", True), ("failed", False), ("unfinished", False)])
    def test_it_diverged_only_if_every_step_size_did(self, tmp_path, other, diverged):
        plans = planned(lrs=[0.1, 0.01], k="4", method="abm")
        runs = [store(tmp_path, p.made, None, s) for p, s in zip(plans, ("diverged", other), strict=True)]
        (panel,) = judge(recipes.about("table8"), plans, select(runs)).panels
        assert panel.lines[0].diverged == diverged

    def test_relaysum_stands_in_the_panel_of_the_others(self, tmp_path):
        verdict = judge(recipes.about("table7"), planned("table7"), [])
        assert [(p.title, len(p.lines)) for p in verdict.panels] == [("k = 10", 8), ("k = 2", 8)]
        assert [line.paper_mean for line in verdict.panels[1].lines][-3:] == [87.0, 89.0, 89.3]


class TestMeasurement:
    def test_what_the_runs_of_a_plan_say(self, tmp_path):
        plans = planned(k="4", method="abm", lrs=[0.1, 0.01])
        runs = [store(tmp_path, p.made, 0.7, status) for p, status in zip(plans, ("done", "unfinished"), strict=True)]
        found = measure(recipes.about("table8"), PaperPlan(plans, []), runs)
        told = found.to_json("quick", ["gossamer paper table8"])
        assert list(told) == [
            "item", "title", "scale", "epochs", "commands", "runs", "seconds", "summary", "panels", "averages",
            "warnings", "cells",
        ]  # fmt: skip
        assert (told["item"], told["scale"], told["epochs"], told["runs"]) == ("table8", "quick", 20.0, 1)
        assert told["seconds"] == {"median": 7, "longest": 7}
        assert told["panels"][0]["methods"][0]["mean"] == pytest.approx(70.0)
        json.dumps(told, allow_nan=False)

    def test_before_any_run_and_with_runs_of_other_lengths(self):
        plans = planned(k="4", method="abm")
        longer = [PlannedRun(p.asked, replace(p.made, epochs=30.0)) for p in plans]
        in_rounds = [PlannedRun(p.asked, replace(p.made, rounds=5)) for p in plans]
        for chosen, epochs in ((plans, 20.0), ([*plans, *longer], None), (in_rounds, None)):
            told = measure(recipes.about("table8"), PaperPlan(chosen, []), []).to_json("quick", [])
            assert (told["epochs"], told["runs"], told["seconds"]) == (epochs, 0, None)


class TestPublished:
    def test_the_start_of_momentum_tracking_matters(self):
        usual = Experiment(dataset="svhn", method="momentum-tracking:beta=0.9", partition="k-class:k=4")
        zero = Experiment(dataset="svhn", method="momentum-tracking:init=zero", partition="k-class:k=4")
        assert published(6, usual).mean == 91.7
        assert published(6, zero).mean == 92.0
        assert published(2, zero) is None

    def test_other_settings_have_none(self):
        assert published(2, Experiment(dataset="digits")) is None
        assert published(2, Experiment(dataset="svhn", topology="complete")) is None
        assert published(None, Experiment(dataset="svhn")) is None
        assert published(5, Experiment(dataset="cifar-10", model="vgg-11", partition="dirichlet:alpha=1")) is None
