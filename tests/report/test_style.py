"""Looks that can be told apart."""

from gossamer import methods
from gossamer.report.charts import class_colours
from gossamer.report.style import BUILT_IN, MARKER_PATHS, looks, matplotlib_marker


def test_every_built_in_method_has_a_look_of_its_own():
    assert set(BUILT_IN) == set(methods.BUILT_IN)
    assert len({(look.colour, look.dash) for look in BUILT_IN.values()}) == len(BUILT_IN)
    assert len({look.marker for look in BUILT_IN.values()}) == len(BUILT_IN)
    assert looks(["dsgd", "mine"])["dsgd"] == BUILT_IN["dsgd"]


def test_other_methods_keep_their_look_and_share_it_with_none():
    alone = looks(["mine"])["mine"]
    assert looks(["mine", "dsgd"])["mine"].dash == alone.dash
    many = looks([*BUILT_IN, *(f"mine-{k}" for k in range(14))])
    assert len(set(many.values())) == 26
    assert list(many)[:2] == ["dsgd", "dsgdm"]
    # The first few take colours that nobody has yet.
    few = looks([f"mine-{k}" for k in range(7)])
    assert len({look.colour for look in few.values()}) == 7
    # There is a look for every method, though not always a new one.
    assert len(looks([f"mine-{k}" for k in range(40)])) == 40


def test_every_marker_can_be_drawn():
    for look in looks([*BUILT_IN, *(f"mine-{k}" for k in range(14))]).values():
        assert MARKER_PATHS[look.marker].endswith("Z")
        assert matplotlib_marker(look)


def test_classes_have_colours_of_their_own():
    for number in (2, 10, 20, 100):
        colours = class_colours(number)
        assert len(set(colours)) == number
        assert all(len(colour) == 7 for colour in colours)
