import sys

import pytest

from gossamer.data.partition import k_class
from gossamer.errors import GossamerError
from gossamer.report.style import class_colours

PARTITION = k_class(4, 2)([0, 1, 2] * 30)


@pytest.mark.parametrize(
    ("name", "magic"), [("chart.png", b"\x89PNG"), ("chart.svg", b"<?xml"), ("CHART.PDF", b"%PDF")]
)
def test_draws_a_file_and_leaves_nothing_else(tmp_path, name, magic):
    path = PARTITION.plot(tmp_path / name)
    assert path.read_bytes().startswith(magic)
    assert list(tmp_path.iterdir()) == [path]


def test_without_a_path_the_figure_is_returned_and_notebooks_show_it(tmp_path):
    from matplotlib.figure import Figure

    from gossamer.topology import ring

    for thing in (PARTITION, ring(4)):
        figure = thing.plot()
        assert isinstance(figure, Figure)
        assert figure._repr_png_().startswith(b"\x89PNG")
    assert ring(4).plot(tmp_path / "ring.svg") == tmp_path / "ring.svg"
    assert (tmp_path / "ring.svg").read_bytes().startswith(b"<?xml")


def test_notebooks_show_a_table_of_the_nodes():
    shown = PARTITION._repr_html_()
    assert shown.startswith("<table><caption>k_class(nodes=4, k=2")
    assert shown.count("<tr>") == 5
    many = k_class(50, 2)([0, 1, 2] * 100)._repr_html_()
    assert many.startswith("<pre>")
    assert "... and 10 more nodes" in many


def test_names_the_classes_and_the_recipe(tmp_path):
    from matplotlib import rc_context

    with rc_context({"svg.fonttype": "none"}):
        text = PARTITION.plot(str(tmp_path / "chart.svg"), class_names=["shirt", "shoe", "bag"]).read_text()
    assert all(word in text for word in ("shirt", "shoe", "bag", "k_class(nodes=4, k=2", "samples"))


def test_bar_heights(monkeypatch, tmp_path):
    from matplotlib.axes import Axes

    drawn = []
    bar = Axes.bar
    monkeypatch.setattr(Axes, "bar", lambda self, x, h, **kw: drawn.append((h, kw)) or bar(self, x, h, **kw))
    PARTITION.plot(tmp_path / "chart.png")
    assert [list(heights) for heights, _ in drawn] == PARTITION.label_counts.T.tolist()
    assert [low + high for low, high in zip(drawn[-1][1]["bottom"], drawn[-1][0], strict=True)] == PARTITION.sizes
    assert [kw["color"] for _, kw in drawn] == class_colours(3), "a class has the colour that it has in a report"


def test_many_classes(tmp_path):
    assert k_class(4, 10)(list(range(25)) * 10).plot(tmp_path / "many.png").exists()


def test_bad_requests_get_a_sentence(tmp_path):
    with pytest.raises(GossamerError, match=r"\.png, \.svg, \.pdf"):
        PARTITION.plot(tmp_path / "chart.doc")
    with pytest.raises(GossamerError, match=r"path of a file, such as 'partition\.png', not 5"):
        PARTITION.plot(5)
    with pytest.raises(GossamerError, match="needs 3 class names, not 1"):
        PARTITION.plot(tmp_path / "chart.png", class_names=["shirt"])


def test_without_matplotlib_it_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(GossamerError, match=r"pip install 'gossamer\[report\]'"):
        PARTITION.plot(tmp_path / "chart.png")
