"""At the end of a process: let its last messages arrive."""

import os
import sys
from multiprocessing.util import Finalize
from typing import Protocol

from gossamer.errors import GossamerError
from gossamer.network.waiting import log


class Closable(Protocol):
    """What has to be closed before the process ends."""

    def close(self) -> None:
        """Wait for all messages."""
        ...


unclosed: set[Closable] = set()
"""What is closed at exit, even if nobody else refers to it any more."""
_hooked: int | None = None


def close_at_exit(net: Closable) -> None:
    """Remember to close the network when this process ends."""
    global _hooked
    if net in unclosed:
        return
    unclosed.add(net)
    if _hooked != os.getpid():
        # Unlike atexit this also runs in a multiprocessing child, which forgets what was registered before the fork.
        Finalize(None, _close_all, exitpriority=100)
        _hooked = os.getpid()


def _close_all() -> None:
    """At exit: let the last messages arrive. A process that fails ends at once instead, and its neighbours notice."""
    failing = getattr(sys, "last_value", None) is not None
    for net in list(unclosed):
        try:
            if not failing:
                net.close()
        except GossamerError as error:
            log.warning("%s", error)
