"""Looks that can be told apart."""

import math

from gossamer import methods
from gossamer.report.style import BUILT_IN, class_colours, looks, matplotlib_marker


def test_every_built_in_method_has_a_look_of_its_own():
    assert set(BUILT_IN) == set(methods.BUILT_IN)
    assert len({(look.colour, look.dash) for look in BUILT_IN.values()}) == len(BUILT_IN)
    assert len({look.marker for look in BUILT_IN.values()}) == len(BUILT_IN)
    assert looks(["dsgd", "mine"])["dsgd"] == BUILT_IN["dsgd"]
    assert BUILT_IN["momentum-tracking"].width == max(look.width for look in BUILT_IN.values()) > BUILT_IN["dsgd"].width


def test_other_methods_keep_their_look_and_share_it_with_none():
    alone = looks(["mine"])["mine"]
    assert looks(["mine", "dsgd"])["mine"].dash == alone.dash
    many = looks([*BUILT_IN, *(f"mine-{k}" for k in range(14))])
    assert len(set(many.values())) == len(BUILT_IN) + 14
    assert list(many)[:2] == ["dsgd", "dsgdm"]
    assert not {many[f"mine-{k}"].colour for k in range(14)} & {look.colour for look in BUILT_IN.values()}
    # The first few take colours that nobody has yet.
    few = looks([f"mine-{k}" for k in range(7)])
    assert len({look.colour for look in few.values()}) == 7
    assert all(look.dash == "solid" and look.width > BUILT_IN["dsgd"].width for look in few.values())
    assert all(_contrast(look.colour, paper) >= 3 for look in few.values() for paper in ("#FFFFFF", "#1D2024"))
    # There is a look for every method, though not always a new one.
    assert len(looks([f"mine-{k}" for k in range(40)])) == 40


def _contrast(colour: str, paper: str) -> float:
    """WCAG's ratio of the lighter to the darker colour."""

    def light(hexes: str) -> float:
        parts = [int(hexes[k : k + 2], 16) / 255 for k in (1, 3, 5)]
        red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue + 0.05

    return max(light(colour), light(paper)) / min(light(colour), light(paper))


def test_colours_of_other_methods_cannot_be_taken_for_built_in_ones():
    own = {look.colour for look in looks([f"mine-{k}" for k in range(7)]).values()}
    built_in = {look.colour for look in BUILT_IN.values()}
    assert min(math.dist(_oklab(a), _oklab(b)) for a in own for b in built_in | own if a != b) > 0.12


def _oklab(colour: str) -> tuple[float, float, float]:
    """Ottosson's perceptual coordinates; between vermilion and orange lie 0.16."""
    parts = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    r, g, b = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    long = math.cbrt(0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b)
    medium = math.cbrt(0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b)
    short = math.cbrt(0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b)
    return (
        0.2104542553 * long + 0.793617785 * medium - 0.0040720468 * short,
        1.9779984951 * long - 2.428592205 * medium + 0.4505937099 * short,
        0.0259040371 * long + 0.7827717662 * medium - 0.808675766 * short,
    )


def test_every_marker_can_be_drawn():
    for look in looks([*BUILT_IN, *(f"mine-{k}" for k in range(14))]).values():
        assert look.svg_marker.endswith("Z")
        assert matplotlib_marker(look)


def test_classes_have_colours_of_their_own():
    for number in (2, 10, 20, 100):
        colours = class_colours(number)
        assert len(set(colours)) == number
        assert all(len(colour) == 7 for colour in colours)
