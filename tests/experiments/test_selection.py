"""The step size of each cell, its mean over seeds, and what a reader must be told."""

import json
from statistics import stdev

import pytest

from gossamer.experiments.experiment import Experiment
from gossamer.experiments.selection import ranked, seeds_note, select
from gossamer.experiments.store import StoredRun


@pytest.fixture
def store(tmp_path):
    """Write a run with given final figures, which are those of `end`; without figures it has that status."""

    def store(lr, seed=0, accuracy=None, validation=None, status="done", *, end=None, copy="", **settings):
        experiment = Experiment(lr=lr, seed=seed, **settings)
        directory = tmp_path / f"{experiment.id}{copy}"
        directory.mkdir()
        about = {"id": experiment.id, "cell": experiment.cell, "label": experiment.label}
        (directory / "run.json").write_text(json.dumps({**about, "experiment": experiment.to_dict()}))
        if accuracy is not None:
            row = {**(end or {"round": 9, "epoch": experiment.epochs}), "accuracy": accuracy}
            if validation is not None:
                row["validation_accuracy"] = validation
            (directory / "metrics.jsonl").write_text(json.dumps(row) + "\n")
        if status != "unfinished":
            reason = {} if status == "done" else {"reason": f"it {status}"}
            (directory / "done.json").write_text(json.dumps({"status": status, **reason}))
        return StoredRun(directory)

    return store


def test_the_best_validation_accuracy_decides_not_the_best_test_accuracy(store):
    runs = [
        store(lr, seed, accuracy, validation)
        for lr, figures in {0.1: (0.9, 0.5), 0.01: (0.7, 0.8), 0.001: (0.8, 0.6)}.items()
        for seed, (accuracy, validation) in enumerate([figures, (figures[0] + 0.02, figures[1] + 0.01)])
    ]
    (cell,) = select(runs)
    assert (cell.lr, cell.seeds, cell.at_edge, cell.warnings) == (0.01, 2, False, [])
    assert cell.mean == pytest.approx(0.71)
    assert cell.std == pytest.approx(stdev([0.7, 0.72]))
    assert cell.score == pytest.approx(0.805)
    assert [c.lr for c in cell.candidates] == [0.001, 0.01, 0.1]
    assert [run.experiment.seed for run in cell.runs] == [0, 1]
    assert json.loads(json.dumps(cell.to_dict()))["lr"] == 0.01


@pytest.mark.parametrize(("best", "end", "beyond"), [(0.1, "largest", "larger"), (0.001, "smallest", "smaller")])
def test_a_best_step_size_at_the_edge_is_reported(store, best, end, beyond):
    (cell,) = select([store(lr, 0, 0.5, 0.9 if lr == best else 0.1) for lr in (0.1, 0.01, 0.001)])
    assert cell.at_edge
    assert cell.warnings == [
        f"Momentum Tracking: the best step size, {best:g}, is the {end} of those tried (0.001, 0.01, 0.1); "
        f"a {beyond} one may be better still"
    ]


def test_a_single_step_size_is_reported(store):
    (cell,) = select([store(0.1, 0, 0.5, 0.5)])
    assert not cell.at_edge
    assert cell.std is None
    assert cell.warnings == ["Momentum Tracking: only one step size was tried (0.1)"]


def test_a_step_size_that_diverged_counts_as_the_worst_and_as_tried(store):
    runs = [
        store(1.0, 0, 0.9, 0.99),
        store(1.0, 1, status="diverged"),
        store(0.1, 0, 0.5, 0.5),
        store(0.01, 0, 0.4, 0.4),
    ]
    (cell,) = select(runs)
    assert cell.lr == 0.1
    assert not cell.at_edge
    assert cell.warnings[-1] == "Momentum Tracking: 1 run diverged at lr 1: it diverged"
    (lost,) = select([store(lr, 5, status="diverged") for lr in (2.0, 3.0)])
    assert (lost.lr, lost.mean, lost.runs) == (None, None, [])
    assert "every step size tried diverged (2, 3); try smaller ones than 2" in lost.warnings[0]


def test_what_is_unfinished_or_failed_is_left_out_but_counted(store):
    runs = [
        store(0.1, 0, 0.5, 0.5),
        store(0.1, 1, 0.9, status="unfinished"),
        store(0.01, 0, 0.4, 0.4),
        store(0.01, 1, 0.4, 0.4),
        store(0.5, 0, status="failed"),
    ]
    (cell,) = select(runs)
    assert (cell.lr, cell.mean, cell.count("unfinished"), cell.count("failed")) == (0.1, 0.5, 1, 1)
    assert cell.at_edge, "a step size that failed was not tried"
    words = " ".join(cell.warnings)
    assert "the mean is over 1 seed; other step sizes have 2" in words
    assert "1 run failed at lr 0.5: it failed" in words
    assert "1 run not finished yet at lr 0.1" in words
    (empty,) = select([store(0.2, 9, status="unfinished")])
    assert (empty.lr, empty.at_edge, empty.score) == (None, False, None)


def test_step_sizes_are_compared_on_the_seeds_that_all_have(store):
    runs = [store(0.1, 0, 0.5, 0.6), store(0.1, 1, 0.5, 0.1), store(0.1, 2, 0.8, 0.1), store(0.01, 0, 0.4, 0.5)]
    (cell,) = select(runs)
    assert (cell.lr, cell.seeds, cell.score) == (0.1, 3, 0.6), "on seed 0 alone it is the better one"
    assert cell.mean == pytest.approx(0.6)
    assert "Momentum Tracking: the step size was chosen on 1 seed, which all step sizes have" in cell.warnings


def test_step_sizes_without_a_common_seed_are_compared_on_their_own(store):
    (cell,) = select([store(0.1, 0, 0.5, 0.6), store(0.01, 1, 0.4, 0.5)])
    assert (cell.lr, cell.score) == (0.1, 0.6)


def test_without_a_validation_set_test_accuracy_serves_and_this_is_said(store):
    (cell,) = select([store(lr, 0, accuracy) for lr, accuracy in ((0.1, 0.5), (0.01, 0.6), (0.001, 0.2))])
    assert cell.lr == 0.01
    assert cell.warnings == [
        "Momentum Tracking: there is no validation set, so the step size was chosen by test accuracy"
    ]


def test_cells_keep_methods_and_partitions_apart_and_can_be_ranked(store):
    cells = select(
        [
            store(0.1, 0, 0.5, 0.5, method="dsgd"),
            store(0.1, 0, 0.6, 0.6, method="dsgd", partition="iid"),
            store(0.2, 0, status="unfinished", method="dsgd", partition="shards:per_node=2"),
            store(0.1, 0, 0.7, 0.7),
        ]
    )
    assert [(c.label, c.experiment.partition) for c in ranked(cells)] == [
        ("Momentum Tracking", "k-class:k=4"), ("DSGD", "iid"), ("DSGD", "k-class:k=4"), ("DSGD", "shards:per_node=2")
    ]  # fmt: skip


def test_equal_scores_take_the_smaller_step_size(store):
    (cell,) = select([store(lr, 0, 0.5, 0.5) for lr in (0.1, 0.01, 0.001)])
    assert cell.lr == 0.001


class TestOneRunTwice:
    def test_it_counts_once_and_the_directory_left_out_is_named(self, store):
        runs = [store(0.1, 0, 0.5, 0.5), store(0.1, 0, 0.7, 0.7, copy="-processes"), store(0.1, 1, 0.6, 0.6)]
        (cell,) = select(runs)
        assert (cell.seeds, cell.figures) == (2, [0.5, 0.6])
        assert (f"Momentum Tracking: 1 run is stored more than once; left out: {runs[1].directory}") == cell.warnings[
            -1
        ]

    def test_the_one_that_is_done_is_kept(self, store):
        runs = [store(0.1, 0, 0.5, status="unfinished"), store(0.1, 0, 0.7, 0.7, copy="-again")]
        (cell,) = select(runs)
        assert (cell.runs, cell.count("unfinished")) == ([runs[1]], 0)
        assert cell.warnings[-1].endswith(f"left out: {runs[0].directory}")

    def test_naming_a_directory_twice_is_no_second_run(self, store):
        run = store(0.1, 0, 0.5, 0.5)
        (cell,) = select([run, StoredRun(run.directory)])
        assert (cell.seeds, len(cell.warnings)) == (1, 1)


class TestWhyThereIsNoAccuracy:
    @pytest.mark.parametrize(
        ("statuses", "missing"),
        [
            (["diverged", "diverged"], "diverged"),
            (["diverged", "unfinished"], "unfinished"),
            (["diverged", "failed"], "failed"),
            (["failed", "unfinished"], "unfinished"),
            (["failed"], "failed"),
            (["diverged", "done"], ""),
        ],
    )
    def test_it_diverged_only_if_every_step_size_did(self, store, statuses, missing):
        runs = [
            store(lr, 0, *((0.5, 0.5) if status == "done" else ()), status=status)
            for lr, status in zip((0.1, 0.01), statuses, strict=False)
        ]
        (cell,) = select(runs)
        assert cell.missing == missing
        assert any("every step size tried diverged" in w for w in cell.warnings) == (missing == "diverged")

    def test_a_step_size_of_which_a_seed_diverged_did(self, store):
        (cell,) = select([store(0.1, 0, status="diverged"), store(0.1, 1, status="unfinished")])
        assert cell.missing == "diverged"


class TestFiguresCutShort:
    @pytest.mark.parametrize(
        ("settings", "end"),
        [
            ({"rounds": 80}, {"round": 40, "epoch": 4.0}),
            ({"epochs": 3.0}, {"round": 24, "epoch": 2.0}),
            ({"epochs": 3.0}, {"round": 0, "epoch": 0.0}),
        ],
    )
    def test_they_are_no_result(self, store, settings, end):
        run = store(0.1, 0, 0.5, 0.5, end=end, **settings)
        (cell,) = select([run])
        assert (cell.mean, cell.missing) == (None, "unfinished")
        assert cell.warnings == [
            f"Momentum Tracking: the last figures of 1 run are lost; delete {run.directory} to make it again"
        ]

    @pytest.mark.parametrize(
        ("settings", "end"),
        [
            ({"rounds": 80}, {"round": 80, "epoch": 6.7}),
            ({"epochs": 0.5}, {"round": 6, "epoch": 6 / 13}),
            ({"epochs": 20.0}, {"round": 1140, "epoch": 20.0}),
        ],
    )
    def test_the_last_round_is_known_by_rounds_or_epochs(self, store, settings, end):
        (cell,) = select([store(0.1, 0, 0.5, 0.5, end=end, **settings)])
        assert cell.mean == 0.5


class TestSeedsThatDiffer:
    def test_step_sizes_without_a_common_seed_are_warned_of(self, store):
        (cell,) = select([store(0.1, 0, 0.5, 0.9), store(0.1, 1, 0.5, 0.1), store(0.01, 2, 0.4, 0.6)])
        assert cell.lr == 0.01
        assert "Momentum Tracking: the step sizes have no seed in common; they were compared on different seeds" in (
            cell.warnings
        )
        (alone,) = select([store(0.1, 0, 0.5, 0.9, method="dsgd"), store(0.01, 2, status="diverged", method="dsgd")])
        assert not any("in common" in warning for warning in alone.warnings)

    def test_methods_are_ranked_on_the_seeds_that_all_have(self, store):
        cells = select(
            [
                store(0.1, 0, 0.5, 0.5, method="dsgd"),
                store(0.1, 1, 0.9, 0.9, method="dsgd"),
                store(0.1, 0, 0.6, 0.6),
                store(0.1, 5, status="unfinished", method="dsgdm"),
            ]
        )
        assert [c.label for c in ranked(cells)] == ["Momentum Tracking", "DSGD", "DSGDm"]
        assert next(c.mean for c in cells if c.label == "DSGD") == pytest.approx(0.7)
        assert seeds_note(cells) == (
            "the methods have different seeds; they are ranked on those that all have (0), not by their means"
        )

    def test_without_a_common_seed_by_the_means(self, store):
        cells = select([store(0.1, 0, 0.5, 0.5, method="dsgd"), store(0.1, 1, 0.6, 0.6)])
        assert [c.label for c in ranked(cells)] == ["Momentum Tracking", "DSGD"]
        assert seeds_note(cells) == "the methods have no seed in common; they are ranked on different seeds"

    def test_equal_seeds_need_no_note(self, store):
        cells = select([store(0.1, seed, 0.5, 0.5, method=m) for m in ("dsgd", "dsgdm") for seed in (0, 1)])
        assert seeds_note(cells) == seeds_note([]) == ""
