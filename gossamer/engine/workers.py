"""Worker threads that share the nodes of a round: one per core, one torch thread each.

A node is always computed by one thread with one torch thread, so the result does not depend on the number of workers.
"""

import ctypes
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from types import TracebackType

import torch

from gossamer._common.checks import whole_number
from gossamer.errors import InputError

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_M_ARENA_MAX = -8
_ALWAYS_FROM_THE_HEAP = 2**31 - 1


class Workers:
    """A pool of worker threads. Use it in a `with` statement: torch's thread count is put back at the end."""

    def __init__(self, number: int | None = None) -> None:
        if number is not None and whole_number(number, "the number of workers", least=None) < 1:
            raise InputError(
                f"A run needs at least one worker, but workers is {number}; leave it out for one per core."
            )
        self.number = number or cores()
        self._threads = torch.get_num_threads()
        self._pool = ThreadPoolExecutor(
            self.number, thread_name_prefix="gossamer-worker", initializer=_one_torch_thread
        )
        keep_freed_memory()

    def run(self, task: Callable[[int], None], tasks: int) -> None:
        """Call task(0) .. task(tasks - 1), each on one of the workers; the first error is raised here."""
        if tasks == 0:
            return
        turn = count()

        def work() -> None:
            while (k := next(turn)) < tasks:
                task(k)

        for done in [self._pool.submit(work) for _ in range(min(self.number, tasks))]:
            done.result()

    def limit_to_one(self) -> None:
        """Use one worker from now on."""
        self.number = 1

    def __enter__(self) -> "Workers":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown(cancel_futures=True)
        torch.set_num_threads(self._threads)


def keep_freed_memory() -> None:
    """Let glibc reuse freed memory instead of returning it to the system and asking for it again at every layer.

    Without this, mapping and unmapping activations costs 15 to 30 % on wide networks. It holds for the whole process as
    long as that lives: memory once used is kept, and all threads take theirs from one heap. Other C libraries are left
    alone.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _ALWAYS_FROM_THE_HEAP)
        mallopt(_M_TRIM_THRESHOLD, _ALWAYS_FROM_THE_HEAP)
        # The heaps that threads would get of their own know no such thresholds.
        mallopt(_M_ARENA_MAX, 1)


def cores() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _one_torch_thread() -> None:
    torch.set_num_threads(1)
    # The count is adopted when a thread first asks for it; ask now, before anyone changes the process-wide value.
    torch.get_num_threads()
