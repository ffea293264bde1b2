"""The classes of the nodes in the experiments of the Momentum Tracking paper, from its authors' own files.

These are the lists in config/ring_8 of https://github.com/yukiTakezawa/MomentumTracking; other graphs have the same.
Every class has as many holders as any other, to within one, which the paper does not say.
"""

import numpy as np
from numpy.typing import NDArray

from gossamer.errors import InputError

CLASSES = 10
LISTS = {  # by k, then by seed: the classes of the eight nodes
    2: (
        "69 04 87 64 12 35 01 23",
        "21 41 79 76 03 58 02 34",
        "01 15 24 43 67 89 02 35",
    ),
    4: (
        "6902 8769 4759 3827 1034 1502 1345 6801",
        "2140 7985 6318 0684 2357 9012 3456 7901",
        "0182 2487 3029 6854 1356 7901 3456 7901",
    ),
    6: (
        "690243 647281 824107 482705 359160 359167 358901 234567",
        "214035 763098 690532 315067 481279 481256 478901 234567",
        "018276 430951 695438 408236 712590 712345 678901 234567",
    ),
    8: (
        "69024351 75341280 94270561 81532497 68037912 68034579 68012345 67890123",
        "21403579 63180942 07451896 09854732 61235780 61234578 69012345 67890123",
        "01827643 30295674 78406231 69241580 59137802 59134678 59012346 57890123",
    ),
    CLASSES: ("0123456789 " * 8,) * 3,
}


SEEDS = len(LISTS[CLASSES])


def check_paper_draw(nodes: int, k: int, classes: int = CLASSES) -> None:
    """Refuse what the paper's experiments do not have."""
    if nodes != 8 or classes != CLASSES or k not in LISTS:
        raise InputError(
            f"The paper's draws are for 8 nodes, {CLASSES} classes and k = {', '.join(map(str, LISTS))}, not for "
            f"{nodes} nodes, {classes} classes and k = {k}; use draw=balanced for others."
        )


def paper_holders(k: int, seed: int) -> NDArray[np.bool_]:
    """Who holds which class [8, 10]."""
    held = [[int(label) for label in word] for word in LISTS[k][seed].split()]
    return np.stack([np.isin(np.arange(CLASSES), own) for own in held])
