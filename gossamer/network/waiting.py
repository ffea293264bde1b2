"""Waiting for peers: how long, how a late one is named in the log and in errors, and the last wait at exit."""

import gc
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
from typing import Any, NamedTuple, Protocol

from gossamer.errors import GossamerError, PeerError
from gossamer.network.faults import ANSWER, ASKING, BEAT, EVERYONE, Board, Fault

log = logging.getLogger("gossamer")

TIMEOUT = 1800.0
"""Seconds until a silent peer is given up: long, because a site may be validating."""
LONGEST = 1e9
"""The longest timeout: the clocks below count nanoseconds in 64 bits."""
SLOW = 30.0
"""Seconds of waiting after which a log line names the peer."""
_POLL = BEAT
_MOMENT = 1.0
"""Seconds within which a peer that has closed its connections has told why, if it is still able to."""


class _Wait(NamedTuple):
    """What is being waited for."""

    what: Callable[[], str]
    since: float
    peer: int
    round: int
    board: Board | None
    after: float
    """Seconds after which it is told on the board."""


class _Watchdog:
    """One thread per process that looks at intervals at what is being waited for.

    A gloo wait cannot be cut into short ones, because a wait that times out closes the connection for good.
    """

    current: _Wait | None = None
    _told: float | None = None
    _board: Board | None = None
    _thread: threading.Thread | None = None

    def __init__(self) -> None:
        self._ended = threading.Event()

    def start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="gossamer-watch", daemon=True)
            self._thread.start()
            Finalize(None, self._end, exitpriority=50)  # after the last wait

    def _run(self) -> None:
        while not self._ended.wait(_POLL):
            self._look()

    def _end(self) -> None:
        """Before Python ends: a thread that comes back from the store while it does would abort the process."""
        self._ended.set()
        for thread in threading.enumerate():
            if thread is self._thread or thread.name == ASKING:
                thread.join(ANSWER)

    def _look(self) -> None:
        """Log once per wait. References are dropped on return: the network may be gone before the next look."""
        current = self.current
        waited = 0.0 if current is None else time.monotonic() - current.since
        if current is not None and waited >= SLOW and current.since != self._told:
            self._told = current.since
            log.warning("still waiting for %s after %.0f s", current.what(), waited)
        board = current.board if current is not None and waited >= current.after else None
        try:
            if self._board is not None and board is None:
                self._board.retract()
            if board is not None and current is not None:
                board.post(current.peer, current.round)
        except (RuntimeError, ValueError):
            pass  # the store is gone
        self._board = board


_watchdog = _Watchdog()


def current_wait(waiting: "Waiting") -> tuple[int, float] | None:
    """For whom this process waits at the moment, on behalf of `waiting`, and since how many seconds; else None."""
    current = _watchdog.current
    if current is None or current.board is not waiting.board:
        return None
    return current.peer, time.monotonic() - current.since


class Waiting:
    """Waits for work under way, counts the seconds per peer, and turns failures into errors that name who failed."""

    def __init__(self, timeout: float) -> None:
        self.timeout = timedelta(seconds=float(timeout))
        self.seconds: defaultdict[int, float] = defaultdict(float)
        self.failure: GossamerError | None = None
        self.board: Board | None = None
        """Where nodes say for whom they wait and what went wrong, once they have met."""
        self.pass_on: Callable[[Fault], None] = lambda fault: None
        """Tells the neighbours of a fault."""
        self.fault: Fault | None = None
        """What went wrong, where it is known."""
        self.rebuilds = False
        """Whether nodes that lose one connect again without it: then a closed connection is word enough."""
        self.finishes_alone = False
        """Whether a step that loses a peer is finished with this node's own vectors, before those who are left meet."""
        self._after = min(1.0, timeout / 4)

    def message(self, work: Any, peer: int, name: Callable[[int], str], round: int, doing: str = "send") -> None:
        """Wait for a message from (doing="send") or to (doing="take") a peer."""
        self.check()
        began = time.monotonic()
        _watchdog.start()
        what = lambda: f"{name(peer)} to {doing} the message of round {round}"  # noqa: E731
        _watchdog.current = _Wait(what, began, peer, round, self.board, self._after)
        try:
            work.wait(self.timeout)
        except RuntimeError as error:
            raise self.lost(error, peer, name, round) from None
        finally:
            _watchdog.current = None
            self.seconds[peer] += time.monotonic() - began

    @contextmanager
    def everyone(self, what: str, name: Callable[[int], str] = str, round: int = 0) -> Iterator[None]:
        """Around a call that needs all nodes at once."""
        self.check()
        _watchdog.start()
        _watchdog.current = _Wait(
            lambda: f"all nodes, for {what}", time.monotonic(), EVERYONE, round, self.board, self._after
        )
        try:
            yield
        except RuntimeError as error:
            fault = self.board.first(_MOMENT) if self.board else None
            if fault is not None:
                raise self.give_up(fault, name) from None
            raise self.refuse(
                f"A node fell silent or went away during {what}, for which all nodes are needed; "
                f"look at the log of the node that ended first ({_first_line(error)})."
            ) from None
        finally:
            _watchdog.current = None

    def check(self) -> None:
        """Raise the first failure again: after it nothing can be sent or received."""
        if self.failure is not None:
            raise self.failure

    def refuse(self, sentence: str, fault: Fault | None = None) -> PeerError:
        """The error for a peer that is out of step; the others are told of the fault."""
        self.failure, self.fault = PeerError(sentence), fault
        if not self.rebuilds:
            self.tell(fault)
        return self.failure

    def lost(self, error: RuntimeError, peer: int, name: Callable[[int], str], round: int) -> GossamerError:
        """The error for a peer that fell silent or went away: that of the node at the root of it."""
        log.debug("waiting for %s in round %d: %s", name(peer), round, error)
        timed_out = "timed out" in str(error).lower() or "timeout" in str(error).lower()
        seconds = self.timeout.total_seconds()
        mine, certain = Fault("silent" if timed_out else "closed", peer, round, lr=seconds), not timed_out
        if self.board is None:
            return self.give_up(mine, name, certain)
        fault = self.board.first(0.0 if timed_out else _MOMENT)
        if fault is None:
            if timed_out:
                root, certain = self.board.root(peer, round)
                mine = root._replace(lr=seconds)
            fault = self.board.report(mine)
        return self.give_up(fault, name, certain or fault is not mine)

    def give_up(self, fault: Fault, name: Callable[[int], str], certain: bool = True) -> GossamerError:
        """The error for a fault that others know of, or that is this node's own; the neighbours are told."""
        self.failure, self.fault = fault.error(name, self.timeout.total_seconds(), certain), fault
        if not self.rebuilds:
            self.pass_on(fault)
        return self.failure

    def tell(self, fault: Fault | None) -> None:
        """Tell all nodes of a fault."""
        if fault is not None:
            if self.board:
                self.board.report(fault)
            self.pass_on(fault)


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0][:200] if str(error) else type(error).__name__


class Closable(Protocol):
    """What has to be closed before the process ends."""

    @property
    def failed(self) -> bool:
        """Whether a peer has failed, so that nothing can be sent or received any more."""
        ...

    def close(self) -> None:
        """Wait for all messages."""
        ...


unclosed: dict[Closable, None] = {}
"""What is closed at exit, even if nothing else refers to it any more; in the order of first use, as on all nodes."""
_hooked: int | None = None
_failed = False


def close_at_exit(net: Closable) -> None:
    """Remember to close the network when this process ends."""
    global _hooked
    if net in unclosed:
        return
    unclosed[net] = None
    if _hooked != os.getpid():
        # Unlike atexit this also runs in a multiprocessing child, which forgets what was registered before the fork.
        Finalize(None, _close_all, exitpriority=100)
        Finalize(None, _end_as_failed, exitpriority=-100)
        _hooked = os.getpid()


def _close_all() -> None:
    """At exit: let the last messages arrive. A process that fails ends at once instead, and its neighbours notice."""
    global _failed
    failing = getattr(sys, "last_value", None) is not None
    if failing or any(net.failed for net in unclosed):
        # Python would look through all objects for garbage, which takes a second of computing, or more side by side.
        gc.freeze()
    for net in list(unclosed):
        try:
            if not failing:
                net.close()
        except GossamerError as error:
            log.error("%s", error)
            _failed = True


def _end_as_failed() -> None:
    """After all other exit handlers: a run whose last wait failed is no success, and only this can still say so."""
    if _failed:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
        os._exit(1)
