"""What Gossamer raises when it is asked for something impossible.

Every message is one sentence or two: what is wrong, why, and what to do.
"""

from collections.abc import Iterable
from difflib import get_close_matches


class GossamerError(ValueError):
    """Bad input. The command line prints the message alone and exits with code 2."""


def unknown(kind: str, name: str, known: Iterable[str]) -> GossamerError:
    """The error for a name that does not exist, with the nearest one that does.

    >>> str(unknown("topology", "ring-graph", ["ring", "star"]))
    "There is no topology 'ring-graph'; did you mean 'ring'? Known: ring, star."
    """
    names = sorted(known)
    near = get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"; did you mean '{near[0]}'?" if near else "."
    return GossamerError(f"There is no {kind} '{name}'{hint} Known: {', '.join(names)}.")
