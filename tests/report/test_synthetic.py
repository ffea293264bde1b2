"""The synthetic experiment's table, figures and page."""

import json
import re
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from gossamer import GossamerError
from gossamer.experiments.synthetic import SyntheticConfig, SyntheticResult, run_synthetic
from gossamer.methods import BUILT_IN, FOR_SLOW_LINKS
from gossamer.report.figures import load_matplotlib, save
from gossamer.report.synthetic import (
    HIGHEST,
    check_report,
    explain,
    levels,
    synthetic_figures,
    write_json,
    write_report,
)

CONFIG = SyntheticConfig(nodes=4, dim=2, rounds=40, lr=1e-3)
COMMAND = "gossamer synthetic --topology 'a <b> & c'"


@pytest.fixture(scope="module")
def result() -> SyntheticResult:
    return run_synthetic(CONFIG)


@pytest.fixture(scope="module")
def small(result) -> SyntheticResult:
    """A part of it, with its notes: matplotlib takes its time."""
    cells = [c for c in result.cells if c.method in ("dsgd", "momentum-tracking", "d2") and c.zeta2 <= 25]
    return replace(result, config=replace(CONFIG, zeta2=(0.0, 25.0)), cells=cells)


@pytest.fixture(scope="module")
def written(small, tmp_path_factory) -> Path:
    directory = tmp_path_factory.mktemp("report") / "deep" / "inside"
    assert write_report(small, directory, COMMAND) == directory / "report.html"
    return directory


class Page(HTMLParser):
    """Collects the tags and attributes of a page, and checks that tags close in order."""

    VOID = ("meta", "br", "img")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self._open: list[str] = []
        self.feed(text)
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in self.VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag


class TestReport:
    def test_both_figures_are_there_as_png_and_svg(self, written):
        names = sorted(p.name for p in written.iterdir())
        assert names == ["initial_phase.png", "initial_phase.svg", "long_run.png", "long_run.svg", "report.html"]
        for stem in ("initial_phase", "long_run"):
            png = (written / f"{stem}.png").read_bytes()
            assert png.startswith(b"\x89PNG\r\n\x1a\n")
            assert len(png) > 10_000
            width = int.from_bytes(png[16:20], "big")
            assert width > 1000
            svg = (written / f"{stem}.svg").read_text()
            assert svg.startswith("<?xml")
            assert svg.rstrip().endswith("</svg>")
            assert "<dc:date>" not in svg

    def test_the_page_loads_nothing(self, written):
        text = (written / "report.html").read_text()
        page = Page(text)
        assert text.startswith("<!doctype html>")
        assert not {"script", "link", "img", "iframe", "object", "base"} & set(page.tags)
        assert not {"src", "srcset", "data", "action"} & {name for name, _ in page.attributes}
        for name, value in page.attributes:
            if name.endswith("href"):
                assert value is not None
                assert value.startswith("#")
            assert not name.startswith("on")
        assert "@import" not in text
        assert not re.search(r"url\((?!#)", text)

    def test_the_page_shows_everything(self, written, small):
        text = (written / "report.html").read_text()
        assert Page(text).tags.count("svg") == 2
        for cells in small.by_method.values():
            assert f">{cells[0].title}</td>" in text
        assert small.notes
        for note in small.notes:
            assert note.replace("'", "&#39;") in text
        assert "<code>gossamer synthetic --topology &#39;a &lt;b&gt; &amp; c&#39;</code>" in text
        (bold,) = (row for row in text.split("<tr>") if " best" in row)
        assert bold.count(" best") == bold.count("<td")
        assert "Momentum Tracking" in bold
        assert 'name="viewport"' in text
        assert "prefers-color-scheme: dark" in text

    def test_a_second_report_takes_the_place_of_the_first_with_the_same_bytes(self, written, small, tmp_path):
        (tmp_path / "report.html").write_text("old")
        write_report(small, tmp_path, COMMAND)
        assert len(list(tmp_path.iterdir())) == 5
        for path in written.iterdir():
            assert (tmp_path / path.name).read_bytes() == path.read_bytes(), path.name

    def test_runs_that_diverge_are_drawn_as_far_as_they_go(self, tmp_path):
        config = replace(CONFIG, lr=100.0, rounds=400, methods=("dsgd", "gtadam"), zeta2=(25.0,))
        result = run_synthetic(config)
        assert [row[2] for row in levels(result).rows] == ["diverged", f"{result.cells[1].tail_mean:.1e}"]
        figure = synthetic_figures(result)["long_run"]
        assert save(figure, tmp_path / "long_run.png").exists()
        (axes,) = figure.axes
        assert 0 < max(axes.lines[0].get_ydata()) < HIGHEST
        assert max(axes.lines[0].get_xdata()) < 400 == max(axes.lines[1].get_xdata())


class TestTable:
    def test_head_and_rows(self, result):
        table = levels(result)
        head, rows = table.head, table.rows
        assert head == ["method", "graph", "zeta² = 0", "zeta² = 25", "zeta² = 50", "closed-form stall", "seconds"]
        assert len(rows) == len(BUILT_IN) - len(FOR_SLOW_LINKS)
        assert all(len(row) == len(head) for row in rows)
        first, cells = rows[0], result.by_method["dsgd"]
        assert first[:2] == ["DSGD", "ring"]
        assert [float(v) for v in first[2:5]] == pytest.approx([c.tail_mean for c in cells], rel=0.05)
        assert float(first[5]) == pytest.approx(cells[-1].stall, rel=0.05)
        tracking = rows[list(result.by_method).index("momentum-tracking")]
        assert tracking[5] == "–"
        assert table.best == {(rows.index(tracking), column) for column in range(len(head))}
        alone = replace(result, cells=[cell for cell in result.cells if cell.method == "dsgd"])
        assert not levels(alone).best

    def test_the_explanation_names_the_settings(self, result):
        text = explain(result)
        assert "last quarter of 40 rounds: 4 nodes, d = 2, ring, step size 0.001, beta 0.9, sigma² = 1, seed 0." in text
        assert "draws" not in text
        assert "mean over 3 draws of b" in explain(replace(result, config=replace(CONFIG, draws=3)))

    def test_json(self, result, tmp_path):
        path = tmp_path / "new" / "result.json"
        write_json(result, path)
        read = json.loads(path.read_text())
        assert [(c["method"], c["zeta2"]) for c in read["cells"]] == [(c.method, c.zeta2) for c in result.cells]
        assert read["cells"][4]["curve"] == result.cells[4].curve
        assert path.read_text().endswith("\n")


class TestFigures:
    def test_one_panel_for_each_zeta_and_one_line_for_each_method(self, result):
        figures = synthetic_figures(result)
        assert list(figures) == ["initial_phase", "long_run"]
        for figure, upto in zip(figures.values(), (2, 40), strict=True):
            assert [ax.get_title() for ax in figure.axes] == [rf"$\zeta^2 = {z}$" for z in (0, 25, 50)]
            for ax in figure.axes:
                assert [line.get_label() for line in ax.lines] == [c[0].title for c in result.by_method.values()]
                assert ax.get_yscale() == "log"
                assert max(max(line.get_xdata()) for line in ax.lines) == upto
        first = figures["initial_phase"].axes[1].lines[0]
        assert list(first.get_ydata()) == pytest.approx(result.by_method["dsgd"][1].curve[:3])

    def test_the_long_run_is_smoothed_over_nine_points(self, result):
        line = synthetic_figures(result)["long_run"].axes[0].lines[0]
        curve = result.by_method["dsgd"][0].curve
        assert line.get_ydata()[20] == pytest.approx(sum(curve[16:25]) / 9)
        assert line.get_ydata()[0] == pytest.approx(sum(curve[:5]) / 5)

    def test_pyplot_and_its_settings_are_left_alone(self, result, tmp_path):
        import matplotlib as mpl

        before = dict(mpl.rcParams)
        synthetic_figures(result)
        assert dict(mpl.rcParams) == before
        assert "matplotlib.pyplot" not in sys.modules or not sys.modules["matplotlib.pyplot"].get_fignums()

    def test_without_matplotlib_there_is_a_sentence_before_any_work(self, result, tmp_path, monkeypatch):
        monkeypatch.setitem(sys.modules, "matplotlib", None)
        for call in (
            load_matplotlib,
            lambda: check_report(tmp_path),
            lambda: write_report(result, tmp_path, "x"),
            lambda: save(Figure(), tmp_path / "empty.svg"),
        ):
            with pytest.raises(
                GossamerError, match=r"Figures need matplotlib.*run: pip install 'gossamer\[report\]'\."
            ):
                call()
        assert list(tmp_path.iterdir()) == []


def test_check_report_looks_at_both_places(tmp_path):
    check_report(tmp_path / "out", tmp_path / "x.json")
    (tmp_path / "file").write_text("x")
    for out, curves in ((tmp_path / "file", None), (tmp_path / "out", tmp_path / "file" / "x.json")):
        with pytest.raises(GossamerError, match="is a file, not a directory"):
            check_report(out, curves)
