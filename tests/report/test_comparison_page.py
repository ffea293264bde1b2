"""The report's page, without a browser: what is in it, and that nothing in it asks for a network."""

import json
import re
import sys
import tomllib

import pytest

from gossamer import GossamerError
from gossamer.experiments.experiment import Experiment
from gossamer.experiments.paper.verdict import PaperLine, PaperPanel, Verdict
from gossamer.experiments.store import StoredRun
from gossamer.experiments.training import train
from gossamer.report import check_report, write_report
from gossamer.report.comparison import collect
from gossamer.report.pages import comparison_page, plotly_script, toml
from tests.report.stored_runs import BASE, copied, unfinished


def without_scripts(page: str) -> str:
    return re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL)


def figures(page: str, panel: int = 0) -> dict:
    found = re.search(rf'<script type="application/json" id="figures-panel-{panel}">(.*?)</script>', page, re.DOTALL)
    return json.loads(found[1])


@pytest.fixture(scope="module")
def page(runs) -> str:
    return comparison_page(collect(runs), "A <title>", "gossamer compare --methods 'a,b' & more")


def test_the_page_says_what_was_compared_and_how_to_make_it_again(page, runs):
    text = without_scripts(page)
    for words in (
        "A &lt;title&gt;",
        "3 methods, 12 runs: digits, small-cnn, k-class:k=5, ring, 4 nodes.",
        "gossamer compare --methods &#39;a,b&#39; &amp; more",
        "spectral gap 1 − λ = 0.6667",
        "p = 0.8889",
        "mean label distance (0 = iid, towards 1 = nothing in common)",
        "Each node on its own data",
        "Worst node: the lowest accuracy of any node with any seed.",
        "Configuration and versions",
        "<dt>churn</dt><dd>not set</dd>",
        "All 12 runs",
        'data-method="Momentum Tracking"',
    ):
        assert words in text
    for entry in collect(runs).panels[0].entries:
        assert f"{100 * entry.mean:.1f} ± {100 * entry.std:.2f}" in text
    assert "heterogeneity" not in text
    boxes = re.findall(r'<input type="checkbox" checked data-method="(.*?)">', text)
    assert boxes == [entry.method for entry in collect(runs).panels[0].entries]


def test_the_page_begins_with_its_conclusion_and_a_title_that_says_what_was_compared(runs):
    one = [run for run in runs if run.experiment.seed == 0]
    text = without_scripts(comparison_page(collect(one), ""))
    body = text[text.index("<body>") :]
    title = body[: body.index("</h1>")].partition("<h1>")[2]
    assert title.endswith(" on digits, k-class:k=5, ring of 4 nodes")
    assert all(name in title for name in ("DSGDm", "Gradient Tracking", "Momentum Tracking"))
    found = collect(one).panels[0].conclusion
    assert found.sentence in body[: body.index("<table")]
    assert "which one is ahead may be chance" in body[: body.index("<table")]
    assert ' best"' not in body
    several = without_scripts(comparison_page(collect(runs), ""))
    assert "One seed" not in several
    assert "95 % t-interval of the mean paired difference" in several


def test_a_page_of_two_partitions_says_who_depends_on_them(runs, tmp_path):
    other = [copied(run, tmp_path / str(k), partition="k-class:k=1") for k, run in enumerate(runs)]
    found = collect([*runs, *other])
    assert found.conclusion.startswith("From 1 class per node to 5 classes per node, no method's test accuracy ")
    assert found.conclusion in without_scripts(comparison_page(found, "")).replace("&#39;", "'")
    elsewhere = [copied(run, tmp_path / f"elsewhere-{k}", dataset="mnist") for k, run in enumerate(runs)]
    assert not collect([*runs, *elsewhere]).conclusion.startswith("From")


def test_the_page_says_what_an_epoch_is_where_nodes_are_unequal(page, tmp_path):
    assert "An epoch is" not in without_scripts(page)
    run = train(Experiment(**{**BASE, "rounds": 3, "partition": "dirichlet:alpha=0.3"}), tmp_path / "run")
    sizes = [sum(counts) for counts in json.loads((run.directory / "run.json").read_text())["partition"]["counts"]]
    assert min(sizes) < max(sizes)
    rounds = round(run.rows[-1]["round"] / run.rows[-1]["epoch"])
    note = f"The nodes hold {min(sizes)} to {max(sizes)} samples. An epoch is {rounds} rounds for all of them, the mean"
    assert note in without_scripts(comparison_page(collect([run]), "t"))


def test_nothing_comes_from_elsewhere(page):
    assert not re.search(r'(src|href)="(?!#)', without_scripts(page))
    assert "@import" not in page.split("<script>")[0]
    assert plotly_script() in page


def test_figures_are_plain_and_carry_their_method(page, runs):
    found = figures(page)
    assert set(found) >= {"accuracy", "accuracy-bytes", "accuracy-seconds", "node-spread", "consensus", "tracking",
                          "node-accuracy", "partition"}  # fmt: skip
    lines = [t for t in found["accuracy"]["data"] if t.get("name")]
    assert {t["meta"] for t in lines} == {"DSGDm", "Gradient Tracking", "Momentum Tracking"}
    bands = [t for t in found["accuracy"]["data"] if t.get("fill")]
    assert {t["meta"] for t in bands} == {t["meta"] for t in lines}
    counts = runs[0].about["partition"]["counts"]
    assert [t["y"] for t in found["partition"]["data"]] == [list(column) for column in zip(*counts, strict=True)]
    colours = {
        (t["meta"], t["line"]["color"])
        for chart in found.values()
        for t in chart["data"]
        if t.get("name") and "line" in t
    }
    assert len(colours) == 3


def test_a_page_without_a_command_shows_every_experiment(runs):
    text = without_scripts(comparison_page(collect(runs), "t"))
    assert "gossamer run experiment.toml" in text
    assert text.count("method = &#34;") == 3


def test_a_method_of_ones_own_can_be_made_again_with_its_file(runs, tmp_path):
    usual = without_scripts(comparison_page(collect(runs), "t"))
    mine = copied(runs[0], tmp_path / "run", label="Mine", method="mine")
    alone = without_scripts(comparison_page(collect([*runs, mine]), "t"))
    told = without_scripts(comparison_page(collect([*runs, mine]), "t", "gossamer compare --load mine.py"))
    assert "--load" not in usual
    assert "For Mine add --load FILE: the Python file that defines it." in alone
    assert "For Mine add --load FILE: the one in the command above." in told


def test_a_single_run_is_compared_with_nothing(runs):
    assert "What was compared" not in without_scripts(comparison_page(collect(runs[:1]), "t"))
    assert "What was compared" in without_scripts(comparison_page(collect(runs), "t"))


def test_an_experiment_survives_the_way_through_its_file():
    experiment = Experiment(method="momentum-tracking:beta=0.5,init=zero", lr=1e-5, topology='file:"g".txt', clip=1)
    assert Experiment.from_dict(tomllib.loads(toml(experiment))).id == experiment.id


def test_hostile_text_from_a_run_stays_text(runs, tmp_path):
    nasty = '</script><script>alert(1)</script>" onload="alert(2)'
    mine = copied(runs[0], tmp_path / "run", label=nasty, method="mine")
    about = mine.about
    about["graph"]["name"] = about["partition"]["recipe"] = about["environment"]["torch"] = nasty
    about["partition"]["classes"][0] = about["experiment"]["topology"] = nasty
    (mine.directory / "run.json").write_text(json.dumps(about))
    line = PaperLine("m", nasty, 1.0, None, None, 1, False, 2.0, None)
    verdict = Verdict((PaperPanel(nasty, (line,), stand_in=nasty),))
    page = comparison_page(collect([StoredRun(mine.directory), runs[1]]), nasty, nasty, verdict, [nasty])
    assert "<script>alert(1)" not in page
    assert '" onload="' not in page
    assert page.count("&lt;script&gt;alert(1)") > 20
    assert figures(page, 0)["accuracy"]["data"][-1]["meta"] == nasty


def test_a_half_finished_sweep_is_reported_and_says_so(runs, tmp_path):
    mine = [copied(run, tmp_path / str(k)) for k, run in enumerate(runs)]
    for k, run in enumerate(mine[5:]):
        unfinished(run, k % 3)
    text = without_scripts(comparison_page(collect([StoredRun(r.directory) for r in mine]), "t"))
    assert "7 of 12 runs not finished" in text
    assert "unfinished" in text


def test_graphs_that_change_and_graphs_that_are_too_large_are_described(runs, tmp_path):
    mine = copied(runs[0], tmp_path / "run")
    about = json.loads((mine.directory / "run.json").read_text())
    about["graph"] |= {"period": 3, "nodes": 100, "edges": [[a, b] for a in range(100) for b in range(a)]}
    (mine.directory / "run.json").write_text(json.dumps(about))
    text = without_scripts(comparison_page(collect([StoredRun(mine.directory)]), "t"))
    assert "3 rounds until it repeats" in text
    assert "Too many edges to draw." in text
    assert "Every" in text


def test_many_settings_have_a_matrix_and_a_selector(runs, tmp_path):
    other = [copied(run, tmp_path / run.directory.name, partition="iid") for run in runs]
    page = comparison_page(collect([*runs, *other]), "t")
    assert '<select id="panel"><option value="panel-0">iid</option><option value="panel-1">k-class:k=5</option>' in page
    assert "All results" in page
    assert page.count('<section class="panel"') == 2
    assert set(figures(page, 0)) == set(figures(page, 1))


def test_the_report_is_written_in_one_piece_and_a_missing_plotly_gets_a_sentence(runs, tmp_path, monkeypatch):
    path = write_report(runs, tmp_path / "deep" / "report.html", title="Mine")
    assert path.read_text().startswith("<!doctype html>")
    assert "<title>Mine</title>" in path.read_text()[:500]
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    with pytest.raises(GossamerError, match=r"need plotly.*pip install 'gossamer\[report\]'"):
        check_report(tmp_path / "other.html")
    assert not (tmp_path / "other.html").exists()
