"""From stored runs to what a report shows."""

import json
import math
from statistics import fmean, stdev

import pytest

from gossamer import GossamerError
from gossamer._common.formatting import NONE
from gossamer.experiments.store import StoredRun
from gossamer.report.charts import line_charts
from gossamer.report.comparison import MOST_POINTS, average, collect, natural, node_figures, part_note
from gossamer.report.figures import panel_figures
from gossamer.report.tables import ranking
from tests.report.stored_runs import copied, marked, unfinished


def test_one_panel_ranks_methods_at_their_best_step_size(runs):
    comparison = collect(runs)
    (panel,) = comparison.panels
    assert panel.name == "digits · small-cnn · k-class:k=5 · ring"
    assert comparison.methods == [entry.method for entry in panel.entries]
    assert set(comparison.methods) == {"DSGDm", "Gradient Tracking", "Momentum Tracking"}
    means = [entry.mean for entry in panel.entries]
    assert means == sorted(means, reverse=True)
    assert panel.best is (panel.entries[0] if panel.conclusion.clear else None)
    for entry in panel.entries:
        by_lr = {lr: [r for r in runs if r.label == entry.method and r.experiment.lr == lr] for lr in (0.02, 0.05)}
        score = {lr: fmean(r.rows[-1]["validation_accuracy"] for r in group) for lr, group in by_lr.items()}
        best = max(score, key=lambda lr: (score[lr], -lr))
        assert entry.cell.lr == best
        accuracies = [r.rows[-1]["accuracy"] for r in by_lr[best]]
        assert entry.mean == pytest.approx(fmean(accuracies))
        assert entry.std == pytest.approx(stdev(accuracies))
        assert entry.last("metric") == pytest.approx(entry.mean)
        assert entry.curves["metric"].std[-1] == pytest.approx(entry.std)
        assert entry.step_sizes == [(lr, pytest.approx(s)) for lr, s in score.items()]
        assert fmean(entry.node_figures) == pytest.approx(entry.mean)
        assert entry.worst_node == min(min(r.rows[-1]["node_accuracy"]) for r in by_lr[best])
    assert comparison.varied == {"method": comparison.methods, "lr": [0.02, 0.05], "seed": [0, 1]}
    assert comparison.shared["model"] == "small-cnn"
    assert "lr" not in comparison.shared
    assert comparison.notes == []  # step sizes at the edge are told once, by their panel
    assert any("of those tried (0.02, 0.05)" in note for note in panel.notes)
    assert comparison.environments["gossamer"]


def test_charts_have_what_was_measured(runs):
    (panel,) = collect(runs).panels
    charts = {chart.key: chart for chart in line_charts(panel)}
    assert set(charts) == {
        "accuracy", "accuracy-bytes", "accuracy-seconds", "train-loss", "node-spread", "consensus", "tracking",
        "node-accuracy", "step-sizes",
    }  # fmt: skip
    accuracy = charts["accuracy"].series[0]
    entry = panel.entries[0]
    assert accuracy.method == entry.method
    assert accuracy.x == entry.curves["epoch"].mean
    assert accuracy.y == [pytest.approx(100 * v) for v in entry.curves["metric"].mean]
    assert all(low <= y <= high for low, y, high in zip(accuracy.low, accuracy.y, accuracy.high, strict=True))
    assert "(kB)" in charts["accuracy-bytes"].x_title or "(MB)" in charts["accuracy-bytes"].x_title
    assert {s.method for s in charts["tracking"].series} == {"Gradient Tracking", "Momentum Tracking"}
    # Where all nodes still are equal there is no distance to show on a logarithmic axis.
    assert all(x > 0 for s in charts["consensus"].series for x in s.x)
    assert not any(s.low for s in charts["node-spread"].series)
    assert {key for key, chart in charts.items() if "The band is" in chart.caption} == {
        "accuracy", "accuracy-bytes", "accuracy-seconds", "train-loss", "consensus", "tracking"
    }  # fmt: skip
    assert charts["node-accuracy"].ticks == (0, 1, 2, 3)
    assert {s.chosen for s in charts["step-sizes"].series} <= {0.02, 0.05}


def test_one_seed_has_no_band_to_speak_of(runs):
    (panel,) = collect(run for run in runs if run.experiment.seed == 0).panels
    assert not any("band" in chart.caption for chart in line_charts(panel))


def test_bands_of_a_metric_that_can_be_negative_reach_below_zero(runs, tmp_path):
    found = [copied(run, tmp_path / run.directory.name) for run in runs if run.experiment.lr == 0.05]
    for run in found:
        about = json.loads((run.directory / "run.json").read_text())
        about["metric"] = {"name": "r2", "higher_is_better": True, "percent": False}
        (run.directory / "run.json").write_text(json.dumps(about))
        rows = (run.directory / "metrics.jsonl").read_text().replace("accuracy", "r2").splitlines()
        changed = [{**row, "r2": row["r2"] - 1 - run.experiment.seed} for row in map(json.loads, rows)]
        (run.directory / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in changed))
    comparison = collect(StoredRun(run.directory) for run in found)
    (panel,) = comparison.panels
    (chart,) = (chart for chart in line_charts(panel) if chart.key == "r2")
    for series in chart.series:
        assert max(series.y) < 0
        assert series.low == [y - std for y, std in zip(series.y, series.std, strict=True)]
    (axes,) = panel_figures(panel, comparison.looks)["r2"].axes
    assert axes.get_ylim()[0] < min(low for series in chart.series for low in series.low)


def test_a_single_method_among_others_that_tracks_has_no_chart_of_its_tracking_error(runs):
    def keys(*labels):
        (panel,) = collect(run for run in runs if run.label in labels).panels
        return {chart.key for chart in line_charts(panel)}

    assert "tracking" not in keys("DSGDm", "Momentum Tracking")
    assert "tracking" in keys("Momentum Tracking")


def test_methods_are_in_the_order_of_their_ranks_averaged_over_the_panels(runs, tmp_path):
    # The third of one panel, alone in two others: it comes third, first and first.
    best, middle, worst = collect(runs).methods
    alone = [
        copied(run, tmp_path / f"{partition}-{k}", partition=partition)
        for partition in ("iid", "k-class:k=2")
        for k, run in enumerate(runs)
        if run.label == worst
    ]
    assert collect([*runs, *alone]).methods == [best, worst, middle]


def test_of_epochs_and_rounds_the_one_that_counts_is_shared(runs, tmp_path):
    shared = collect(runs).shared
    assert shared["rounds"] == 8
    assert "epochs" not in shared
    by_epochs = copied(runs[0], tmp_path / "epochs", rounds=0)
    assert collect([by_epochs]).shared["epochs"] == 20
    assert "rounds" not in collect([by_epochs]).shared
    assert collect([*runs, by_epochs]).shared["epochs"] == 20


def test_other_settings_make_other_panels(runs, tmp_path):
    others = [copied(run, tmp_path / run.directory.name, partition="iid", nodes=4) for run in runs]
    comparison = collect([*others, *runs])
    assert [panel.name for panel in comparison.panels] == ["iid", "k-class:k=5"]
    assert [len(panel.entries) for panel in comparison.panels] == [3, 3]
    assert [panel.key for panel in comparison.panels] == ["iid", "k-class-k-5"]
    assert comparison.varied["partition"] == ["iid", "k-class:k=5"]


def test_the_dataset_tells_the_model_and_files_have_different_names(runs, tmp_path):
    mine = [copied(runs[0], tmp_path / "a", dataset="mnist.x"), copied(runs[0], tmp_path / "b", dataset="mnist-x")]
    comparison = collect([*runs, *mine])
    assert [panel.name for panel in comparison.panels] == ["digits", "mnist-x", "mnist.x"]
    assert comparison.values["model"] == ["lenet", "small-cnn"]
    assert len({panel.key for panel in comparison.panels}) == 3


def test_a_method_with_a_graph_of_its_own_joins_the_others(runs, tmp_path):
    relay = [copied(run, tmp_path / str(k), method="relaysum", topology="chain") for k, run in enumerate(runs[:4])]
    (panel,) = collect([*runs, *relay]).panels
    (entry,) = (e for e in panel.entries if e.method == "RelaySum")
    assert entry.title == "RelaySum on chain"
    assert panel.settings["topology"] == "ring"
    assert panel.about["graph"]["name"] == "ring"
    # But a method that was run on both graphs is compared on each.
    both = copied(runs[0], tmp_path / "both", topology="chain")
    assert len(collect([*runs, *relay, both]).panels) == 2


def test_unfinished_diverged_and_failed_runs_are_told(runs, tmp_path):
    mine = [copied(run, tmp_path / str(k)) for k, run in enumerate(runs)]
    dsgdm, tracking, momentum = mine[:4], mine[4:8], mine[8:]
    for run in dsgdm:
        unfinished(run, 2)
    for run in tracking:
        marked(run, "diverged")
    marked(momentum[0], "failed")
    comparison = collect([StoredRun(run.directory) for run in mine])
    assert comparison.notes[0] == (
        "4 of 12 runs not finished, 1 of 12 runs failed, 4 of 12 runs diverged. Accuracies are those of finished runs."
    )
    (panel,) = comparison.panels
    found = {entry.method: entry for entry in panel.entries}
    assert panel.entries[0].method == "Momentum Tracking"
    assert found["DSGDm"].missing == "unfinished"
    assert found["Gradient Tracking"].missing == "diverged"
    assert math.isnan(found["DSGDm"].mean)
    assert len(found["DSGDm"].curves["metric"].mean) == 2
    assert any("The loss is nan" in note for note in panel.notes)


def test_seeds_with_other_numbers_of_evaluations_end_where_each_of_them_ends(runs, tmp_path):
    mine = [copied(run, tmp_path / run.directory.name) for run in runs if run.label == "DSGDm"]
    for run in mine:
        if run.experiment.seed == 1:
            lines = (run.directory / "metrics.jsonl").read_text().splitlines(keepends=True)
            (run.directory / "metrics.jsonl").write_text("".join([lines[0], *lines[-2:]]))
    (entry,) = collect([StoredRun(run.directory) for run in mine]).panels[0].entries
    last = [run.rows[-1] for run in entry.runs]
    assert [len(run.rows) for run in entry.runs] == [5, 3]
    for column, key in {"metric": "accuracy", "averaged": "averaged_accuracy", "bytes": "bytes_sent",
                        "seconds": "seconds", "epoch": "epoch"}.items():  # fmt: skip
        assert entry.last(column) == pytest.approx(fmean(row[key] for row in last))
        assert entry.curves[column].mean[-1] == pytest.approx(entry.last(column))
    assert entry.last("node_spread") == pytest.approx(fmean(r["accuracy_max"] - r["accuracy_min"] for r in last))


def test_curves_are_averaged_at_the_same_share_of_training():
    def run(epochs):
        return [{"epoch": e, "accuracy": e / epochs[-1], "train_loss": 1.0 if e else None} for e in epochs]

    bands = average([run([0.0, 1.0, 2.0, 3.0]), run([0.0, 0.6, 1.2, 1.8, 2.4, 3.0])])
    assert bands["epoch"].mean == pytest.approx([0, 1, 2, 3])
    assert bands["metric"].mean == pytest.approx([0, 1 / 3, 2 / 3, 1])
    assert bands["metric"].std == pytest.approx([0, 0, 0, 0])
    assert bands["train_loss"].mean[1:] == [1, 1, 1]
    assert math.isnan(bands["train_loss"].mean[0])
    # As many rounds, which are fewer epochs where nodes hold more.
    bands = average([run([0.0, 1.0, 2.0, 3.0]), run([0.0, 0.7, 1.4, 2.1])])
    assert bands["epoch"].mean == pytest.approx([0, 0.85, 1.7, 2.55])
    assert bands["metric"].std == pytest.approx([0, 0, 0, 0])
    # What is not finished has no known whole: it is compared epoch by epoch, as far as the shortest goes.
    begun = [{"epoch": e, "accuracy": 0.1 * e} for e in (0.0, 1.0, 2.0, 3.0)]
    bands = average([begun, [{"epoch": e, "accuracy": 0.1 * e} for e in (0.0, 0.5, 1.5)]], finished=False)
    assert bands["epoch"].mean == pytest.approx([0, 0.5, 1.5])
    assert bands["metric"].mean == pytest.approx([0, 0.05, 0.15])
    assert average([]) == average([[], []])


def test_runs_without_any_figures_do_no_harm(runs, tmp_path):
    (only,) = [unfinished(copied(runs[0], tmp_path / "a"), 0)]
    (panel,) = collect([only]).panels
    assert panel.best is None
    assert line_charts(panel) == []
    assert math.isnan(panel.entries[0].last("bytes"))


def test_nothing_to_report_on_gets_a_sentence():
    with pytest.raises(GossamerError, match="There are no runs to report on"):
        collect([])


def test_methods_of_ones_own_have_a_look_of_their_own(runs, tmp_path):
    mine = [copied(runs[0], tmp_path / str(k), label=f"Mine {k}", method=f"mine-{k}") for k in range(5)]
    looks = collect([*runs, *mine]).looks
    assert len(set(looks.values())) == len(looks) == 8
    of_built_in = {looks[name].colour for name in ("DSGDm", "Gradient Tracking", "Momentum Tracking")}
    assert not any(looks[f"Mine {k}"].colour in of_built_in for k in range(5))


def test_long_curves_are_thinned_and_keep_their_ends():
    rows = [{"epoch": float(k), "accuracy": k / 1000} for k in range(1001)]
    bands = average([rows, rows])
    assert len(bands["epoch"].mean) == MOST_POINTS
    assert (bands["epoch"].mean[0], bands["epoch"].mean[-1]) == (0.0, 1000.0)
    assert node_figures([rows]) == []


def test_numbers_sort_by_size_also_in_words():
    words = ["k=10", "k=2", "dirichlet:alpha=0.5", "dirichlet:alpha=0.25", "iid"]
    assert sorted(words, key=natural) == ["dirichlet:alpha=0.25", "dirichlet:alpha=0.5", "iid", "k=2", "k=10"]
    assert sorted([10.0, 2.0, 0.5], key=natural) == [0.5, 2.0, 10.0]


def test_methods_with_other_seeds_are_ranked_on_the_common_ones_and_this_is_said(runs):
    fewer = [run for run in runs if (run.label, run.experiment.seed) != ("DSGDm", 1)]
    (panel,) = collect(fewer).panels
    note = "The methods have different seeds; they are ranked on those that all have (0), not by their means."
    assert panel.notes[0] == note
    assert note not in collect(runs).panels[0].notes
    first = [next(r for r in entry.cell.runs if r.experiment.seed == 0).rows[-1]["accuracy"] for entry in panel.entries]
    assert first == sorted(first, reverse=True)


def test_figures_on_a_part_of_the_test_set_are_told_from_final_ones(runs, tmp_path):
    """An unfinished run has curves, but its last figures are not those of the whole test set: tables leave them out."""
    part = copied(runs[0], tmp_path / "part", evaluations=0)
    rows = [{**row, "test_samples": 100} for row in part.rows[:-1]]
    (part.directory / "metrics.jsonl").write_text("".join(json.dumps(r) + "\n" for r in [*rows, part.rows[-1]]))
    done = collect([StoredRun(part.directory)]).panels[0]
    captions = {chart.key: chart.caption for chart in line_charts(done)}
    told = "Before the end on a random part of the test set (100 of 355 samples)."
    assert [key for key, caption in captions.items() if told in caption] == [
        "accuracy", "accuracy-bytes", "accuracy-seconds", "node-spread",
    ]  # fmt: skip
    assert part_note([run.rows for run in runs]) == ""
    unfinished(part, rows=3)
    entry = collect([StoredRun(part.directory)]).panels[0].entries[0]
    assert len(entry.curves["metric"].mean) == 3
    assert entry.node_figures == []
    assert ranking(collect([StoredRun(part.directory)]).panels[0]).rows[0][5:7] == [NONE, NONE]
