"""The few words in front of every message, by which nodes that have fallen out of step notice it and say so."""

import struct
from typing import NamedTuple

_LAYOUT = struct.Struct("<qqqqdqqq")
BYTES = _LAYOUT.size
CHANGE = -1
"""In the place of the hash of the settings: the sender is about to change what it exchanges. No hash is negative."""
_MARK = 0x676F7373616D6572  # "gossamer" in ASCII: what does not start with it is not one of our messages


class Header(NamedTuple):
    """What a message says about itself."""

    round: int
    """The round whose weights mix it."""
    serial: int
    """How many messages its sender had sent before: two nodes in step count alike."""
    node: int
    """Who sent it."""
    lr: float
    """The step size of the first parameter group when it left."""
    settings: int
    """A hash of all step sizes and hyper-parameters."""
    stop: int = 0
    """The round before which all nodes stop, where somebody has asked for it; else 0."""

    def write(self, words: memoryview) -> None:
        """Put the header into the first 64 bytes of a message."""
        _LAYOUT.pack_into(words, 0, _MARK, self.round, self.serial, self.node, self.lr, self.settings, self.stop, 0)

    @classmethod
    def read(cls, words: memoryview) -> "Header | None":
        """The header at the beginning of a message; None if it has none."""
        mark, round, serial, node, lr, settings, stop, _ = _LAYOUT.unpack_from(words)
        return cls(round, serial, node, lr, settings, stop) if mark == _MARK else None


def complaint(mine: Header, theirs: Header | None) -> str | None:
    """What a peer does wrong, by its message that should match one's own; None if nothing."""
    if theirs is None:
        return (
            f"sent something in round {mine.round} that is no message of this version of Gossamer; "
            f"install the same version everywhere."
        )
    if (theirs.settings == CHANGE) != (mine.settings == CHANGE):
        how = "has changed" if theirs.settings == CHANGE else "has not changed"
        return (
            f"{how} before round {mine.round} which parameters it trains, unlike this node; "
            f"freeze, unfreeze, add and load parameters on all nodes in the same round."
        )
    if theirs.round != mine.round:
        return (
            f"is in round {theirs.round} while this node is in round {mine.round}; every node must call step() equally "
            f"often (gossamer.rounds(loader, n) makes it so), and resend() and average_() in the same round."
        )
    if theirs.serial != mine.serial:
        return (
            f"has sent {theirs.serial} messages before round {mine.round}, this node {mine.serial}; "
            f"resend(), average_() and changes of the parameters must happen on all nodes in the same round."
        )
    if theirs.settings != mine.settings:
        what = (
            f"its step size is {theirs.lr:g}, here it is {mine.lr:g}"
            if theirs.lr != mine.lr
            else "its momentum, its weight decay or the step size of a later parameter group differs"
        )
        return (
            f"trains with other settings than this node in round {mine.round}: {what}; "
            f"give all nodes the same schedule and step it by rounds."
        )
    return None
