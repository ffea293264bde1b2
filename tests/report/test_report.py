"""Figures, the page, the table and the files they go to."""

import io
import json
import os
import re
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from gossamer import GossamerError
from gossamer._common.files import check_writable, replacing, write_text
from gossamer.experiments.synthetic import SyntheticConfig, SyntheticResult, run_synthetic
from gossamer.methods import BUILT_IN
from gossamer.report.figures import load_matplotlib, render
from gossamer.report.style import line_style
from gossamer.report.synthetic import (
    HIGHEST,
    check_report,
    explain,
    synthetic_figures,
    table_rows,
    write_json,
    write_report,
)

CONFIG = SyntheticConfig(nodes=4, dim=2, rounds=40, lr=1e-3)
COMMAND = "gossamer synthetic --topology 'a <b> & c'"


@pytest.fixture(scope="module")
def result() -> SyntheticResult:
    return run_synthetic(CONFIG)


@pytest.fixture(scope="module")
def written(result, tmp_path_factory) -> Path:
    directory = tmp_path_factory.mktemp("report") / "deep" / "inside"
    assert write_report(result, directory, COMMAND) == directory / "report.html"
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

    def test_the_page_shows_everything(self, written, result):
        text = (written / "report.html").read_text()
        assert Page(text).tags.count("svg") == 2
        for cells in result.by_method.values():
            assert f">{cells[0].title}</td>" in text
        for note in result.notes:
            assert note.replace("'", "&#39;") in text
        assert "<code>gossamer synthetic --topology &#39;a &lt;b&gt; &amp; c&#39;</code>" in text
        (bold,) = (row for row in text.split("<tr>") if " best" in row)
        assert bold.count(" best") == bold.count("<td")
        assert "Momentum Tracking" in bold
        assert 'name="viewport"' in text
        assert "prefers-color-scheme: dark" in text

    def test_without_momentum_tracking_no_row_stands_out(self, tmp_path):
        result = run_synthetic(replace(CONFIG, methods=("dsgd",), zeta2=(0.0,)))
        assert " best" not in write_report(result, tmp_path, "x").read_text()

    def test_a_second_report_takes_the_place_of_the_first_with_the_same_bytes(self, written, result, tmp_path):
        (tmp_path / "report.html").write_text("old")
        write_report(result, tmp_path, COMMAND)
        assert len(list(tmp_path.iterdir())) == 5
        for path in written.iterdir():
            assert (tmp_path / path.name).read_bytes() == path.read_bytes(), path.name

    def test_runs_that_diverge_are_drawn_as_far_as_they_go(self, tmp_path):
        config = replace(CONFIG, lr=100.0, rounds=400, methods=("dsgd", "gtadam"), zeta2=(25.0,))
        result = run_synthetic(config)
        write_report(result, tmp_path, "x")
        assert ">diverged</td>" in (tmp_path / "report.html").read_text()
        (axes,) = synthetic_figures(result)["long_run"].axes
        assert 0 < max(axes.lines[0].get_ydata()) < HIGHEST
        assert max(axes.lines[0].get_xdata()) < 400 == max(axes.lines[1].get_xdata())


class TestTable:
    def test_head_and_rows(self, result):
        head, rows = table_rows(result)
        assert head == ["method", "graph", "zeta² = 0", "zeta² = 25", "zeta² = 50", "closed-form stall", "seconds"]
        assert len(rows) == len(BUILT_IN)
        assert all(len(row) == len(head) for row in rows)
        first, cells = rows[0], result.by_method["dsgd"]
        assert first[:2] == ["DSGD", "ring"]
        assert [float(v) for v in first[2:5]] == pytest.approx([c.tail_mean for c in cells], rel=0.05)
        assert float(first[5]) == pytest.approx(cells[-1].stall, rel=0.05)
        tracking = rows[list(result.by_method).index("momentum-tracking")]
        assert tracking[5] == "–"

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

    def test_styles_tell_methods_apart(self):
        looks = {(s["color"], s["linestyle"]) for s in map(line_style, BUILT_IN)}
        assert len(looks) == len(BUILT_IN)
        assert line_style("momentum-tracking")["linewidth"] > line_style("dsgd")["linewidth"]
        assert line_style("my-own") == line_style("my-own")
        assert line_style("my-own")["color"] not in {line_style(name)["color"] for name in BUILT_IN}
        assert line_style("my-own")["linewidth"] > line_style("dsgd")["linewidth"]

    def test_without_matplotlib_there_is_a_sentence_before_any_work(self, result, tmp_path, monkeypatch):
        monkeypatch.setitem(sys.modules, "matplotlib", None)
        for call in (
            load_matplotlib,
            lambda: check_report(tmp_path),
            lambda: write_report(result, tmp_path, "x"),
            lambda: render(Figure(), io.StringIO(), "svg"),
        ):
            with pytest.raises(
                GossamerError, match=r"Figures need matplotlib.*run: pip install 'gossamer\[report\]'\."
            ):
                call()
        assert list(tmp_path.iterdir()) == []


class TestFiles:
    def test_text_is_written_in_one_piece(self, tmp_path):
        path = tmp_path / "a" / "b.txt"
        write_text(path, "zeta² = 0\n")
        assert path.read_text(encoding="utf-8") == "zeta² = 0\n"
        assert list(path.parent.iterdir()) == [path]

    def test_a_failure_leaves_the_old_file_and_nothing_else(self, tmp_path):
        path = tmp_path / "kept.txt"
        path.write_text("old")

        def fail_half_way() -> None:
            with replacing(path) as temporary:
                temporary.write_text("new, but")
                assert temporary.parent == path.parent
                assert path.read_text() == "old"
                raise RuntimeError("half-way")

        with pytest.raises(RuntimeError, match="half-way"):
            fail_half_way()
        assert path.read_text() == "old"
        assert list(tmp_path.iterdir()) == [path]

    def test_a_full_disk_gets_a_sentence(self, tmp_path, monkeypatch):
        def full(self, *args, **kwargs):
            raise OSError(28, os.strerror(28))

        monkeypatch.setattr(Path, "write_text", full)
        with pytest.raises(
            GossamerError, match=r"Cannot write .*x\.txt: No space left on device; choose another place or"
        ):
            write_text(tmp_path / "x.txt", "x")
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize("write", [check_writable, lambda path: write_text(path, "x")], ids=["check", "write"])
    def test_a_file_in_the_place_of_a_directory(self, write, tmp_path):
        (tmp_path / "file").write_text("x")
        with pytest.raises(
            GossamerError, match=r"Cannot write .*file is a file, not a directory; choose another place"
        ):
            write(tmp_path / "file" / "report.html")
        assert (tmp_path / "file").read_text() == "x"

    @pytest.mark.parametrize("write", [check_writable, lambda path: write_text(path, "x")], ids=["check", "write"])
    @pytest.mark.parametrize("name", ["directory", "."])
    def test_a_directory_in_the_place_of_a_file(self, write, name, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "directory").mkdir()
        with pytest.raises(
            GossamerError, match=rf"Cannot write {re.escape(name)}: .*; choose another place or make room"
        ):
            write(Path(name))
        assert [p.name for p in tmp_path.iterdir()] == ["directory"]

    @pytest.mark.parametrize("write", [check_writable, lambda path: write_text(path, "x")], ids=["check", "write"])
    def test_a_place_where_nobody_can_write(self, write, tmp_path, monkeypatch):
        def refuse(*args, **kwargs):
            raise PermissionError(13, os.strerror(13))

        monkeypatch.setattr(Path, "mkdir", refuse)
        with pytest.raises(
            GossamerError, match=r"Cannot write .*: Permission denied; choose another place or make room"
        ):
            write(tmp_path / "new" / "x.json")

    def test_check_writable_makes_the_directory_and_leaves_no_file(self, tmp_path):
        check_writable(tmp_path / "new" / "x.json")
        assert list(tmp_path.iterdir()) == [tmp_path / "new"]
        assert list((tmp_path / "new").iterdir()) == []

    def test_check_report_looks_at_both_places(self, tmp_path):
        check_report(tmp_path / "out", tmp_path / "x.json")
        (tmp_path / "file").write_text("x")
        for out, curves in ((tmp_path / "file", None), (tmp_path / "out", tmp_path / "file" / "x.json")):
            with pytest.raises(GossamerError, match="is a file, not a directory"):
                check_report(out, curves)
