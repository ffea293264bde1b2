"""What Gossamer raises when it is asked for something impossible.

Every message is one sentence or two: what is wrong, why, and what to do.
"""

import traceback
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import Any


class GossamerError(Exception):
    """Every error that Gossamer raises on purpose. The command line prints the message alone and exits with code 2."""


class InputError(GossamerError, ValueError):
    """Bad input: an argument, a setting or a file that cannot be used as it is."""


class PeerError(GossamerError, ConnectionError):
    """The other end of a connection failed: a node that fell silent or does something else, a server that fails."""


class DiskError(GossamerError, OSError):
    """A file or a directory could not be read or written."""


class DivergenceError(GossamerError, ArithmeticError):
    """What a node computes is no longer a finite number. In the simulator `history` holds what was measured before.

    >>> str(DivergenceError(node=3, round=12, value=float("nan"), lr=0.5))
    'The run diverged: the loss of node 3 is nan in round 12; try a step size below 0.5, or clip the gradients.'
    """

    def __init__(
        self,
        node: int,
        round: int,
        value: float,
        lr: float,
        what: str = "loss",
        *,
        group: int | None = None,
        name: str = "",
    ) -> None:
        self.node, self.round = node, round
        self.history: Any = None
        where = "" if group is None else f" (parameter group {group})"
        super().__init__(
            f"The run diverged: the {what} of {name or f'node {node}'} is {value} in round {round}{where}; try a step "
            f"size below {lr:g}, or clip the gradients."
        )


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
