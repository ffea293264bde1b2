"""The charts as files for a paper."""

import sys

import pytest

from gossamer import GossamerError
from gossamer.report import write_figures
from gossamer.report.comparison import collect
from gossamer.report.figures import panel_figures
from gossamer.report.style import BUILT_IN
from tests.report.stored_runs import copied, unfinished

CHARTS = {
    "accuracy", "accuracy-bytes", "accuracy-seconds", "train-loss", "node-spread", "consensus", "tracking",
    "node-accuracy", "step-sizes", "partition", "graph",
}  # fmt: skip
BEGINNINGS = {".png": b"\x89PNG\r\n\x1a\n", ".svg": b"<?xml", ".pdf": b"%PDF-"}


def test_every_chart_is_there(runs, tmp_path):
    written = write_figures(runs, tmp_path, formats=("svg",))
    assert {p.name for p in written} == {f"{chart}.svg" for chart in CHARTS}
    assert all(p.read_bytes().startswith(b"<?xml") for p in written)


def test_every_format_has_the_same_bytes_twice(runs, tmp_path):
    only = [unfinished(copied(runs[0], tmp_path / "run"), 0)]
    first, second = (write_figures(only, tmp_path / place) for place in ("a", "b"))
    assert {p.name for p in first} == {f"{chart}{kind}" for chart in ("partition", "graph") for kind in BEGINNINGS}
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes().startswith(BEGINNINGS[one.suffix])
        assert one.read_bytes() == other.read_bytes()


def test_a_method_has_the_colour_of_the_page(runs):
    comparison = collect(runs)
    figures = panel_figures(comparison.panels[0], comparison.looks)
    for name in ("accuracy", "consensus"):
        (axes,) = figures[name].axes
        lines = {line.get_label(): line for line in axes.get_lines()}
        assert lines["Momentum Tracking"].get_color() == BUILT_IN["momentum-tracking"].colour
        assert lines["DSGDm"].get_color() == BUILT_IN["dsgdm"].colour
        entry = comparison.panels[0].entries[0]
        if name == "accuracy":
            assert list(lines[entry.method].get_ydata()) == [100 * v for v in entry.curves["metric"].mean]
    assert figures["accuracy"].axes[0].get_yscale() == "linear"
    assert figures["consensus"].axes[0].get_yscale() == "log"
    assert "p = " in figures["graph"].axes[0].get_title()


def test_panels_have_files_of_their_own_and_formats_can_be_chosen(runs, tmp_path):
    mine = [unfinished(copied(runs[0], tmp_path / p, partition=p), 0) for p in ("iid", "k-class:k=5")]
    names = {p.name for p in write_figures(mine, tmp_path / "figures", formats=("svg",))}
    assert names == {f"{panel}-{what}.svg" for panel in ("iid", "k-class-k-5") for what in ("graph", "partition")}
    # One method that does not track, with one step size.
    comparison = collect(runs[:1])
    assert not {"tracking", "step-sizes"} & set(panel_figures(comparison.panels[0], comparison.looks))


def test_unknown_formats_and_a_missing_matplotlib_get_a_sentence(runs, tmp_path, monkeypatch):
    with pytest.raises(GossamerError, match="Figures are written as png, svg, pdf, not as 'gif'"):
        write_figures(runs, tmp_path, formats=("gif",))
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(GossamerError, match="Figures need matplotlib"):
        write_figures(runs, tmp_path)
    assert not list(tmp_path.iterdir())
