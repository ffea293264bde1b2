"""What Gossamer raises when it is asked for something impossible.

Every message is one sentence or two: what is wrong, why, and what to do.
"""

import traceback
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path


class GossamerError(Exception):
    """Every error that Gossamer raises on purpose. The command line prints the message alone and exits with code 2."""


class InputError(GossamerError, ValueError):
    """Bad input: an argument, a setting or a file that cannot be used as it is."""


class PeerError(GossamerError, ConnectionError):
    """The other end of a connection failed: a node that fell silent or does something else, a server that fails."""


class DiskError(GossamerError, OSError):
    """A file or a directory could not be read or written."""


def unknown(kind: str, name: str, known: Iterable[str]) -> InputError:
    """The error for a name that does not exist, with the nearest one that does.

    >>> str(unknown("topology", "ring-graph", ["ring", "star"]))
    "There is no topology 'ring-graph'; did you mean 'ring'? Known: ring, star."
    """
    names = sorted(known)
    near = get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"; did you mean '{near[0]}'?" if near else "."
    return InputError(f"There is no {kind} '{name}'{hint} Known: {', '.join(names)}.")


def describe(error: BaseException) -> str:
    """An error of somebody's code in words: what, and in which file and line."""
    if isinstance(error, SyntaxError):
        return f"{type(error).__name__} in line {error.lineno}: {error.msg}"
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}{where}"
