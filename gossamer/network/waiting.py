"""Waiting for peers: how long, how a late one is named in the log and in errors, and the last wait at exit."""

import logging
import os
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from multiprocessing.util import Finalize
from typing import Any, NoReturn, Protocol

from gossamer.errors import GossamerError, PeerError

log = logging.getLogger("gossamer")

TIMEOUT = 1800.0
"""Seconds until a silent peer is given up: long, because a site may be validating."""
LONGEST = 1e9
"""The longest timeout: the clocks below count nanoseconds in 64 bits."""
SLOW = 30.0
"""Seconds of waiting after which a log line names the peer."""
_POLL = 0.5


class _Watch:
    """One thread per process that looks at intervals at what is being waited for.

    A gloo wait cannot be cut into short ones, because a wait that times out closes the connection for good.
    """

    current: tuple[Callable[[], str], float] | None = None
    _told: float | None = None
    _thread: threading.Thread | None = None

    def start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="gossamer-watch", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while True:
            time.sleep(_POLL)
            self._look()

    def _look(self) -> None:
        """Log once per wait. References are dropped on return: the network may be gone before the next look."""
        current = self.current
        if current is None or current[1] == self._told:
            return
        what, since = current
        waited = time.monotonic() - since
        if waited >= SLOW:
            self._told = since
            log.warning("still waiting for %s after %.0f s", what(), waited)


_watch = _Watch()


class Waiting:
    """Waits for work under way, counts the seconds per peer, and turns failures into a `PeerError`."""

    def __init__(self, timeout: float) -> None:
        self.timeout = timedelta(seconds=float(timeout))
        self.seconds: defaultdict[int, float] = defaultdict(float)
        self.failure: PeerError | None = None

    def message(self, work: Any, peer: int, name: Callable[[int], str], round: int, doing: str = "send") -> None:
        """Wait for a message from (doing="send") or to (doing="take") a peer."""
        self.check()
        began = time.monotonic()
        _watch.start()
        _watch.current = (lambda: f"{name(peer)} to {doing} the message of round {round}", began)
        try:
            work.wait(self.timeout)
        except RuntimeError as error:
            self.fail(error, name(peer), round, doing)
        finally:
            _watch.current = None
            self.seconds[peer] += time.monotonic() - began

    @contextmanager
    def everyone(self, what: str) -> Iterator[None]:
        """Around a call that needs all nodes at once."""
        self.check()
        _watch.start()
        _watch.current = (lambda: f"all nodes, for {what}", time.monotonic())
        try:
            yield
        except RuntimeError as error:
            self.failure = PeerError(
                f"A node fell silent or went away during {what}, for which all nodes are needed; "
                f"look at the log of the node that ended first ({_first_line(error)})."
            )
            raise self.failure from error
        finally:
            _watch.current = None

    def check(self) -> None:
        """Raise the first failure again: after it nothing can be sent or received."""
        if self.failure is not None:
            raise self.failure

    def refuse(self, sentence: str) -> PeerError:
        """The error for a peer that is out of step."""
        self.failure = PeerError(sentence)
        return self.failure

    def fail(self, error: RuntimeError, peer: str, round: int, doing: str) -> NoReturn:
        """Raise the error for a peer that fell silent or went away."""
        text, peer = str(error).lower(), peer[0].upper() + peer[1:]
        if "timed out" in text or "timeout" in text:
            sentence = (
                f"{peer} has been silent for {self.timeout.total_seconds():g} s: it did not {doing} the message of "
                f"round {round}; look at its log, or give a longer timeout= if it was busy with something else."
            )
        else:
            sentence = (
                f"{peer} closed the connection before round {round} was complete: it crashed or stopped early; "
                f"look at its log, and give every node the same number of steps (gossamer.rounds)."
            )
        self.failure = PeerError(sentence)
        raise self.failure from error


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0][:200] if str(error) else type(error).__name__


class Closable(Protocol):
    """What has to be closed before the process ends."""

    def close(self) -> None:
        """Wait for all messages."""
        ...


unclosed: set[Closable] = set()
"""What is closed at exit, even if nothing else refers to it any more."""
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
