"""Ctrl-C and SIGTERM end a run between two rounds, never inside one."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupted:
    """Whether someone asked the run to end."""

    requested = False


@contextmanager
def deferred_interrupts() -> Iterator[Interrupted]:
    """Note the first SIGINT or SIGTERM instead of obeying it at once; a second one ends the program as usual.

    Signals reach the main thread only: in any other thread nothing is changed. A signal that is ignored, as in a job
    that a shell has put into the background, stays ignored.
    """
    flag = Interrupted()
    if threading.current_thread() is not threading.main_thread():
        yield flag
        return
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    before = {number: handler for number, handler in handlers.items() if handler is not signal.SIG_IGN}

    def note(number: int, frame: FrameType | None) -> None:
        flag.requested = True
        for each, handler in before.items():
            signal.signal(each, handler)

    for number in before:
        signal.signal(number, note)
    try:
        yield flag
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
