"""Ctrl-C and SIGTERM end a run between two rounds, never inside one."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


class Interrupts:
    """Notes the first SIGINT or SIGTERM instead of obeying it at once; a second one ends the program as usual.

    Signals reach the main thread only: in any other thread nothing is changed. A signal that is ignored, as in a job
    that a shell has put into the background, stays ignored.

    While the main thread waits inside a library, Python lets it see no signal. A second one then ends the process all
    the same: a thread of its own hears of it through a pipe.
    """

    def __init__(self) -> None:
        self.signal: int | None = None
        """The signal that came, if one did."""
        self._before: dict[int, Any] = {}
        self._pipe: tuple[int, int] | None = None

    @property
    def requested(self) -> bool:
        """Whether someone asked the run to end."""
        return self.signal is not None

    def defer(self) -> None:
        """From now on, note signals."""
        if threading.current_thread() is not threading.main_thread() or self._before:
            return
        handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        self._before = {number: handler for number, handler in handlers.items() if handler is not signal.SIG_IGN}
        for number in self._before:
            signal.signal(number, self._note)
        self._listen()

    def obey(self) -> None:
        """From now on, signals do what they did before."""
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}
        if self._pipe is not None:
            signal.set_wakeup_fd(-1)
            os.close(self._pipe[1])
            self._pipe = None

    def _listen(self) -> None:
        reading, writing = os.pipe()
        os.set_blocking(writing, False)
        occupied = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        if occupied != -1:  # an event loop listens already
            signal.set_wakeup_fd(occupied, warn_on_full_buffer=False)
            os.close(reading)
            os.close(writing)
            return
        self._pipe = reading, writing
        threading.Thread(target=_end_at_the_second, args=(reading, set(self._before)), daemon=True).start()

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.signal = number
        self.obey()


def _end_at_the_second(pipe: int, numbers: set[int]) -> None:
    """Read the numbers of signals as they come, until the pipe is closed."""
    seen = 0
    while data := os.read(pipe, 1):
        seen += data[0] in numbers
        if seen == 2:
            time.sleep(1)  # a main thread that runs ends as usual in this time
            os._exit(128 + data[0])
    os.close(pipe)


@contextmanager
def deferred_interrupts() -> Iterator[Interrupts]:
    """Signals are noted inside this block, and obeyed as before after it."""
    interrupts = Interrupts()
    interrupts.defer()
    try:
        yield interrupts
    finally:
        interrupts.obey()
