"""How a method looks, the same in every figure."""

from gossamer.methods import BUILT_IN

# Okabe and Ito's palette: told apart by colour-blind readers and in grey print.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#000000", "#56B4E9", "#8C564B")
_ORDER = ("dsgd", "dsgdm", "gradient-tracking", "qg-dsgdm", "decentlam", "momentum-tracking")


def line_style(method: str) -> dict[str, object]:
    """Matplotlib's colour, dashes and width for a method; Momentum Tracking stands out."""
    rank = _ORDER.index(method) if method in _ORDER else len(_ORDER) + _other_rank(method)
    return {
        "color": _COLOURS[rank % len(_COLOURS)],
        "linestyle": "-" if rank < len(_COLOURS) else "--",
        "linewidth": 2.2 if method == "momentum-tracking" else 1.2,
        "zorder": 3 if method == "momentum-tracking" else 2,
    }


def _other_rank(method: str) -> int:
    others = [m for m in BUILT_IN if m not in _ORDER]
    return others.index(method) if method in others else len(others) + sum(map(ord, method)) % len(_COLOURS)
