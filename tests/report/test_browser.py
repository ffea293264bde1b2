"""The report in a real browser, with the network off."""

from collections.abc import Iterator

import pytest

from gossamer.report import write_report
from tests.report.browser import Browser, browser, find_browser
from tests.report.stored_runs import copied

pytestmark = [
    pytest.mark.timeout(400),
    pytest.mark.skipif(find_browser() is None, reason="there is no chromium on the path; set GOSSAMER_CHROMIUM to one"),
]

# Draws every chart of the panel in view as a reader would: by coming to it.
SEE_ALL = """(async () => {
    for (const div of document.querySelectorAll("section.panel:not([hidden]) .plot")) {
        div.scrollIntoView();
        while (!div.querySelector(".main-svg")) await new Promise((done) => setTimeout(done, 20));
    }
    scrollTo(0, 0);
})()"""
VISIBLE = """[...document.querySelectorAll(".plot[data-drawn]")].map((div) => [div.dataset.chart,
    div.data.filter((t) => t.meta === METHOD && t.visible !== false).length,
    div.data.filter((t) => t.meta && t.meta !== METHOD && t.visible === false).length])"""


@pytest.fixture(scope="module")
def pages(runs, tmp_path_factory):
    place = tmp_path_factory.mktemp("pages")
    others = [copied(run, place / "runs" / run.directory.name, partition="iid") for run in runs]
    return write_report(runs, place / "one.html"), write_report([*runs, *others], place / "two.html")


@pytest.fixture(scope="module")
def window(tmp_path_factory) -> Iterator[Browser]:
    with browser(find_browser(), tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture
def empty(window) -> Iterator[Browser]:
    """A window for a page, which must end without an error and without having asked for a network."""
    window.errors.clear()
    window.requests.clear()
    yield window
    assert window.errors == []
    assert window.requests == []


@pytest.fixture
def page(empty, pages) -> Browser:
    """The page of one panel, opened."""
    empty.open(pages[0])
    return empty


def test_every_chart_is_drawn_when_it_comes_into_view(page):
    assert page.run("navigator.onLine") is False
    number = page.run("document.querySelectorAll('.plot').length")
    assert number == 10
    assert page.run("document.querySelectorAll('.plot[data-drawn]').length") < number
    page.run(SEE_ALL)
    for chart in page.run("[...document.querySelectorAll('.plot')].map((div) => div.dataset.chart)"):
        drawn = f"document.querySelector('[data-chart={chart}]').querySelectorAll('.js-line, .point').length"
        assert page.run(drawn) >= 2, chart
    assert page.run("document.querySelectorAll('svg.graph line').length") == 4


def test_one_checkbox_shows_and_hides_a_method_everywhere(page):
    # Also in charts that are drawn only after the click.
    box = "document.querySelector('input[data-method=\"Momentum Tracking\"]')"
    page.run(f"{box}.click()")
    page.run(SEE_ALL)
    visible = VISIBLE.replace("METHOD", "'Momentum Tracking'")
    assert [row[1:] for row in page.run(visible)] == [[0, 0]] * 10
    row = "document.querySelector('tr[data-method=\"Momentum Tracking\"]').className"
    assert page.run(row) == "off"
    page.run(f"{box}.click()")
    shown = {name: (mine, others) for name, mine, others in page.run(visible)}
    assert shown.pop("partition") == (0, 0)
    assert all(mine >= 1 and others == 0 for mine, others in shown.values())
    assert page.run(row) == ""
    page.run("document.querySelector('button[data-show=none]').click()")
    assert page.run("[...document.querySelectorAll('input[data-method]')].some((box) => box.checked)") is False
    assert all(mine == 0 for _, mine, _ in page.run(visible))


def test_pointing_at_a_chart_tells_the_figures(page):
    page.run("document.querySelector('[data-chart=accuracy]').scrollIntoView({block: 'center'})")
    page.wait("document.querySelector('[data-chart=accuracy] .main-svg') !== null")
    x, y = page.run(
        "(() => { const b = document.querySelector('[data-chart=accuracy] .nsewdrag').getBoundingClientRect();"
        " return [b.x + b.width / 2, b.y + b.height / 2]; })()"
    )
    page.point(x - 5, y)
    page.point(x, y)
    page.wait("document.querySelectorAll('[data-chart=accuracy] .hoverlayer text').length > 0")
    told = page.run("document.querySelector('[data-chart=accuracy] .hoverlayer').textContent")
    assert "Momentum Tracking" in told
    assert "±" in told


@pytest.mark.parametrize(("width", "dark"), [(1280, True), (390, False)])
def test_it_fits_the_window_and_follows_the_theme(empty, pages, width, dark):
    page = empty
    page.open(pages[0], width=width, dark=dark)
    page.run(SEE_ALL)
    assert page.run("document.documentElement.scrollWidth") <= width
    dimmest = page.run("Math.min(...getComputedStyle(document.body).color.match(/\\d+/g).map(Number))")
    tick = page.run("getComputedStyle(document.querySelector('.plot .xtick text')).fill.match(/\\d+/g).map(Number)")
    assert (dimmest > 200) is dark
    assert (min(tick) > 200) is dark
    outside = "[...document.querySelectorAll('.plot')].filter((d) => d.scrollWidth > d.clientWidth + 1).length"
    assert page.run(outside) == 0


def test_paper_gets_every_chart_in_dark_ink(empty, pages, tmp_path):
    page = empty
    page.open(pages[0], dark=True)
    page.print(tmp_path / "report.pdf")
    assert (tmp_path / "report.pdf").read_bytes().startswith(b"%PDF-")
    assert page.run("document.querySelectorAll('.plot[data-drawn]').length") == 10
    page.wait("document.querySelector('[data-chart=accuracy] .main-svg').clientWidth > 400")


def test_the_selector_and_the_matrix_change_the_setting(empty, pages):
    page = empty
    page.open(pages[1])
    shown = "[...document.querySelectorAll('section.panel')].filter((p) => !p.hidden).map((p) => p.id).join()"
    assert page.run(shown) == "panel-0"
    page.run(
        "(() => { const s = document.getElementById('panel'); s.value = 'panel-1';"
        " s.dispatchEvent(new Event('change')); })()"
    )
    assert page.run(shown) == "panel-1"
    page.run(SEE_ALL)
    assert page.run("document.querySelectorAll('#panel-1 .plot .main-svg').length") >= 10
    page.run("document.querySelector('a[data-panel=panel-0]').click()")
    assert page.run(shown) == "panel-0"
    assert page.run("document.getElementById('panel').value") == "panel-0"
