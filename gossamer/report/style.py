"""The look of a method: the same colour, dashes and marker in every figure, in print, on light and on dark pages."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from zlib import crc32

# Okabe and Ito's palette, distinguishable for colour-blind readers, without black and yellow, which vanish on dark and
# on light pages, and with a grey.
SKY, BLUE, PINK, ORANGE, GREEN, VERMILION = "#56B4E9", "#0072B2", "#CC79A7", "#E69F00", "#009E73", "#D55E00"
GREY = "#7F7F7F"
# As far from the built-in methods' colours and from each other as can be (0.13 in OKLab), each with a contrast of at
# least 3 : 1 to light and to dark pages.
_OWN = ("#A500FF", "#D20069", "#969600", "#7878FF", "#FF00E1", "#A54BB4", "#0F5AFF")


MARKER_PATHS = {
    "circle": "M-3.5,0a3.5,3.5 0 1,0 7,0a3.5,3.5 0 1,0 -7,0Z",
    "square": "M-3.2,-3.2H3.2V3.2H-3.2Z",
    "diamond": "M0,-4.5L4.5,0L0,4.5L-4.5,0Z",
    "triangle-up": "M0,-4.5L4.3,3H-4.3Z",
    "triangle-down": "M0,4.5L4.3,-3H-4.3Z",
    "triangle-left": "M-4.5,0L3,-4.3V4.3Z",
    "triangle-right": "M4.5,0L-3,-4.3V4.3Z",
    "cross": "M-4,-1.4H-1.4V-4H1.4V-1.4H4V1.4H1.4V4H-1.4V1.4H-4Z",
    "x": "M-3.8,-2L-2,-3.8L0,-1.8L2,-3.8L3.8,-2L1.8,0L3.8,2L2,3.8L0,1.8L-2,3.8L-3.8,2L-1.8,0Z",
    "pentagon": "M0,-4.2L4,-1.3L2.5,3.4H-2.5L-4,-1.3Z",
    "hexagon": "M0,-4.2L3.6,-2.1V2.1L0,4.2L-3.6,2.1V-2.1Z",
    "octagon": "M-1.6,-3.9H1.6L3.9,-1.6V1.6L1.6,3.9H-1.6L-3.9,1.6V-1.6Z",
    "hexagon2": "M-4.2,0L-2.1,-3.6H2.1L4.2,0L2.1,3.6H-2.1Z",
    "diamond-tall": "M0,-5L2.8,0L0,5L-2.8,0Z",
    "star-square": "M-4,-4L0,-1.6L4,-4L1.6,0L4,4L0,1.6L-4,4L-1.6,0Z",
    "star-diamond": "M0,-5.2L1.5,-1.5L5.2,0L1.5,1.5L0,5.2L-1.5,1.5L-5.2,0L-1.5,-1.5Z",
    "star-triangle-up": "M0,-5.5L1.3,-0.8L4.8,2.8L0,1.5L-4.8,2.8L-1.3,-0.8Z",
    "hexagram": "M0,-5L1.4,-2.5H4.3L2.9,0L4.3,2.5H1.4L0,5L-1.4,2.5H-4.3L-2.9,0L-4.3,-2.5H-1.4Z",
    "star": "M0,-5.5L1.4,-1.8L5.3,-1.7L2.2,0.7L3.3,4.5L0,2.3L-3.3,4.5L-2.2,0.7L-5.3,-1.7L-1.4,-1.8Z",
}
"""Every marker as an SVG path around the origin."""


@dataclass(frozen=True)
class Look:
    """A line's colour, dashes ("solid", "dash", "dot" or "dashdot"), marker (plotly's name) and width in points."""

    colour: str
    dash: str
    marker: str
    width: float = 1.5

    @property
    def svg_dashes(self) -> str:
        """The dashes as SVG's `stroke-dasharray`, for the legends of the page."""
        return {"solid": "", "dash": "7 4", "dot": "2 3", "dashdot": "7 3 2 3"}[self.dash]

    @property
    def svg_marker(self) -> str:
        """The marker as an SVG path around the origin."""
        return MARKER_PATHS[self.marker]


BUILT_IN = {
    "dsgd": Look(SKY, "solid", "circle"),
    "dsgdm": Look(BLUE, "solid", "square"),
    "qg-dsgdm": Look(PINK, "solid", "diamond"),
    "decentlam": Look(ORANGE, "solid", "triangle-up"),
    "gradient-tracking": Look(GREEN, "solid", "triangle-down"),
    "momentum-tracking": Look(VERMILION, "solid", "star", 2.6),
    "abm": Look(GREEN, "dash", "cross"),
    "gtadam": Look(PINK, "dash", "x"),
    "d2": Look(ORANGE, "dash", "pentagon"),
    "relaysum": Look(SKY, "dash", "hexagon"),
    "relaysum-m": Look(BLUE, "dash", "triangle-left"),
    "all-reduce-sgdm": Look(GREY, "solid", "triangle-right"),
    "edm": Look(ORANGE, "dot", "octagon"),
    "led": Look(GREY, "dash", "hexagon2"),
    "k-gt": Look(GREEN, "dot", "diamond-tall"),
    "choco-sgd": Look(SKY, "dot", "star-square"),
    "choco-sgdm": Look(BLUE, "dot", "star-diamond"),
    "beer": Look(GREEN, "dashdot", "star-triangle-up"),
    "motef": Look(VERMILION, "dash", "hexagram", 2.2),
}
"""The methods of Gossamer with their default hyper-parameters."""

_MARKERS = ("circle", "square", "diamond", "triangle-up", "triangle-down", "cross", "x")


def looks(names: Iterable[str]) -> dict[str, Look]:
    """A look for every name: fixed for a built-in method, derived from the name for others.

    A user's own methods and other hyper-parameters get thick lines in colours that no built-in method has. Where two
    would share a look, the later one in the alphabet takes the next free colour, and after the last colour the first
    one dashed.
    """
    wanted = list(dict.fromkeys(names))
    chosen = {name: BUILT_IN[name] for name in wanted if name in BUILT_IN}
    for name in sorted(set(wanted) - set(chosen)):
        start = crc32(name.encode())
        order = [_own_look(start + k, dash) for dash in ("solid", "dash") for k in range(len(_OWN))]
        taken = set(chosen.values())
        chosen[name] = next((look for look in order if look not in taken), order[0])
    return {name: chosen[name] for name in wanted}


def _own_look(number: int, dash: str) -> Look:
    k = number % len(_OWN)
    return Look(_OWN[k], dash, _MARKERS[k], 2.2)


def line_style(method: str) -> dict[str, object]:
    """Matplotlib's colour, dashes, width and depth for a method; Momentum Tracking stands out."""
    return matplotlib_line(looks([method])[method])


def matplotlib_line(look: Look) -> dict[str, Any]:
    """The arguments of matplotlib's `plot`."""
    dashes = {"solid": "-", "dash": "--", "dot": ":", "dashdot": "-."}
    return {
        "color": look.colour,
        "linestyle": dashes[look.dash],
        "linewidth": 0.85 * look.width,
        "zorder": 3 if look.width > 2 else 2,
    }


def matplotlib_marker(look: Look) -> str | tuple[int, int, int]:
    """Matplotlib's letter for a marker, or the points, kind and angle of a star."""
    letters: dict[str, str | tuple[int, int, int]] = {
        "circle": "o",
        "square": "s",
        "diamond": "D",
        "triangle-up": "^",
        "triangle-down": "v",
        "triangle-left": "<",
        "triangle-right": ">",
        "cross": "P",
        "x": "X",
        "pentagon": "p",
        "hexagon": "h",
        "star": "*",
        "octagon": "8",
        "hexagon2": "H",
        "diamond-tall": "d",
        "star-square": (4, 1, 45),
        "star-diamond": (4, 1, 0),
        "star-triangle-up": (3, 1, 0),
        "hexagram": (6, 1, 0),
    }
    return letters[look.marker]


def class_colours(number: int) -> list[str]:
    """Colours for classes, none of them a method's: Tol's muted palette, or beyond ten classes a ramp."""
    if number <= len(_MUTED):
        return list(_MUTED[:number])
    return [_mixed(k * (len(_RAMP) - 1) / (number - 1)) for k in range(number)]


_MUTED = (
    "#332288", "#88CCEE", "#44AA99", "#117733", "#999933", "#DDCC77", "#CC6677", "#882255", "#AA4499", "#BBBBBB",
)  # fmt: skip
_RAMP = ((68, 1, 84), (59, 82, 139), (33, 145, 140), (94, 201, 98), (253, 231, 37))


def _mixed(place: float) -> str:
    """The colour at a position between two anchors of the ramp."""
    k = min(int(place), len(_RAMP) - 2)
    mixed = (round(a + (place - k) * (b - a)) for a, b in zip(_RAMP[k], _RAMP[k + 1], strict=True))
    return "#" + "".join(f"{value:02X}" for value in mixed)
