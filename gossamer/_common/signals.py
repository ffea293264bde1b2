"""Ctrl-C and SIGTERM end a run between two rounds or, where a round takes long, within two seconds inside one."""

import os
import select
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

_GRACE = 0.7
"""Grace period in seconds: a main thread that runs has seen a second signal by then and ends as usual."""
PATIENCE = 0.6
"""Seconds in which a round that is under way may end. With the grace period, and the time in which the system frees the
memory of a large model, it makes less than two."""
WORKER = "gossamer-worker"
"""The name of a thread that may be in the middle of a long operation, for which nobody waits after Ctrl-C."""
_MOMENT = 0.05
"""Seconds in which a generator that is being closed has ended."""


class Interrupts:
    """Notes the first SIGINT or SIGTERM instead of obeying it at once; a second one ends the program as usual.

    Signals reach the main thread only: in any other thread nothing is changed. A signal that is ignored, as in a job
    that a shell has put into the background, stays ignored.

    While the main thread waits inside a library, Python runs no signal handler. A second signal still ends the process:
    a separate thread is notified through a pipe. With `patience` that thread also repeats a signal that nobody has
    asked for (`requested`) after so many seconds.
    """

    def __init__(self, patience: float | None = None) -> None:
        self._patience = patience
        self.signal: int | None = None
        """The signal that came, if one did."""
        self._settled = False
        self._before: dict[int, Any] = {}
        self._listener: _SignalListener | None = None

    @property
    def requested(self) -> bool:
        """Whether a signal asked the run to end."""
        if self.signal is not None and self._listener is not None:
            self._listener.noticed = True
        return self.signal is not None

    def defer(self) -> None:
        """From now on, note signals."""
        if threading.current_thread() is not threading.main_thread() or self._before:
            return
        handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        self._before = {number: handler for number, handler in handlers.items() if handler is not signal.SIG_IGN}
        self._listener = _SignalListener.start(set(self._before), self._patience)
        for number in self._before:
            signal.signal(number, self._note)

    def obey(self) -> None:
        """From now on, signals do what they did before."""
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.close()
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    def settle(self) -> int | None:
        """Obey, and take the signal that came, if one did and it has not been taken yet."""
        self.obey()
        untaken = None if self._settled else self.signal
        self._settled = self.signal is not None
        return untaken

    def pass_on(self) -> None:
        """Obey, also the signal that came meanwhile."""
        number = self.settle()
        if number is not None:
            signal.raise_signal(number)

    def pass_on_later(self) -> None:
        """Do the same a moment later, for a caller in which an exception would get lost: a generator that is closed."""
        number, main = self.settle(), threading.main_thread().ident
        if number is not None and main is not None:
            timer = threading.Timer(_MOMENT, signal.pthread_kill, (main, number))
            timer.daemon = True
            timer.start()

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.signal is None:
            self.signal = number
            if self._listener is not None:
                return
            # No thread listens for a second one: let it do what it did before, even while the main one waits.
            self.obey()
        else:
            self.settle()
            signal.raise_signal(number)


class _SignalListener:
    """Ends the process at the second of some signals, unless it is closed soon after."""

    _now: "_SignalListener | None" = None

    def __init__(self, numbers: set[int], reading: int, writing: int, patience: float | None) -> None:
        self._numbers, self._reading, self._writing, self._patience = numbers, reading, writing, patience
        self._closed = self.noticed = False

    @classmethod
    def start(cls, numbers: set[int], patience: float | None) -> "_SignalListener | None":
        """Listen; None where an event loop listens already."""
        reading, writing = os.pipe()
        os.set_blocking(writing, False)
        occupied = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        if occupied != -1:
            signal.set_wakeup_fd(occupied, warn_on_full_buffer=False)
            os.close(reading)
            os.close(writing)
            return None
        cls._now = listener = cls(numbers, reading, writing, patience)
        threading.Thread(target=listener._run, daemon=True).start()
        return listener

    def close(self) -> None:
        """Listen no more."""
        if self._closed:
            return
        self._closed = True
        _SignalListener._now = None
        signal.set_wakeup_fd(-1)
        os.close(self._writing)

    def _run(self) -> None:
        """Read the numbers of signals as they come, until the pipe is closed."""
        seen = 0
        while data := os.read(self._reading, 1):
            seen += data[0] in self._numbers
            if seen == 1 and self._patience is not None:
                self._repeat_unless_noticed(data[0], self._patience)
            if seen == 2:
                self._end_unless_closed(128 + data[0])
        os.close(self._reading)

    def _repeat_unless_noticed(self, number: int, patience: float) -> None:
        """Send the first signal again, unless a second one comes, or the run has seen that there was one."""
        again, _, _ = select.select([self._reading], [], [], patience)
        main = threading.main_thread().ident
        if not again and not self._closed and not self.noticed and main is not None:
            signal.pthread_kill(main, number)

    def _end_unless_closed(self, code: int) -> None:
        deadline = time.monotonic() + _GRACE
        while time.monotonic() < deadline:
            if self._closed:
                return
            time.sleep(0.02)
        os._exit(code)

    @classmethod
    def leave_to_the_parent(cls) -> None:
        """In a forked process: signals that it gets are not to be counted as its parent's."""
        listener = cls._now
        if listener is not None:
            listener.close()
            os.close(listener._reading)  # its thread, which would do so, was not forked


os.register_at_fork(after_in_child=_SignalListener.leave_to_the_parent)


@contextmanager
def deferred_interrupts() -> Iterator[Interrupts]:
    """Signals are noted inside this block, and obeyed as before after it.

    One that is not asked for in `PATIENCE` is obeyed at once.
    """
    interrupts = Interrupts(PATIENCE)
    interrupts.defer()
    try:
        yield interrupts
    finally:
        interrupts.obey()
