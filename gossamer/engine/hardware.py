"""What a run is computed on: the device, its random generators, and the worker threads that share the nodes."""

import atexit
import ctypes
import os
import signal
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from itertools import count
from queue import SimpleQueue
from threading import Thread
from types import TracebackType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gossamer._common.checks import whole_number
from gossamer._common.signals import WORKER
from gossamer.errors import InputError

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_M_ARENA_MAX = -8
_ALWAYS_FROM_THE_HEAP = 2**31 - 1


def device_of(name: str | torch.device) -> torch.device:
    """The device called "cpu", "cuda", "cuda:1" or "mps"; raises if this machine does not have it."""
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError):
        raise InputError(f"There is no device {name!r}; use cpu, cuda or mps.") from None
    if device.type not in ("cpu", "cuda", "mps"):
        raise InputError(f"Gossamer does not run on the device {name!r}; use cpu, cuda or mps.")
    if not _is_available(device):
        raise InputError(f"The device '{name}' was asked for, but torch finds none here; use device='cpu'.")
    return device


def _is_available(device: torch.device) -> bool:
    if device.type == "cuda":
        return torch.cuda.is_available() and (device.index or 0) < torch.cuda.device_count()
    return device.type == "cpu" or torch.backends.mps.is_available()


def generator_state(device: torch.device) -> Tensor:
    """The state of the generator from which layers such as Dropout draw there: one for all models of the process."""
    if device.type == "cuda":
        return torch.cuda.get_rng_state(device)
    return torch.mps.get_rng_state() if device.type == "mps" else torch.get_rng_state()


def set_generator_state(device: torch.device, state: Tensor) -> None:
    """Restore what `generator_state` gave."""
    if device.type == "cuda":
        torch.cuda.set_rng_state(state, device)
    elif device.type == "mps":
        torch.mps.set_rng_state(state)
    else:
        torch.set_rng_state(state)


class NodeGenerators:
    """A generator state for each node of a model that draws random numbers in its forward pass (Dropout).

    A device has one generator for the whole process. The nodes of such a model therefore take turns on one worker, and
    each node's own state is set for its turn. So the result depends neither on the order of the nodes nor on other code
    that draws, and other code finds the generator as it left it.
    """

    def __init__(self, seed: int, nodes: int, device: torch.device | None = None) -> None:
        self._device = device or torch.device("cpu")
        streams = [np.random.SeedSequence([seed, node, 1]).generate_state(1, np.uint64) for node in range(nodes)]
        self.states = [torch.Generator(self._device).manual_seed(int(s[0])).get_state() for s in streams]

    def enter(self, node: int) -> None:
        """Set the node's state for good."""
        set_generator_state(self._device, self.states[node])

    @contextmanager
    def turn(self, node: int) -> Iterator[None]:
        """Set the node's state inside the `with`, keep it for the next turn, and restore what was set before.

        >>> outside = torch.get_rng_state()
        >>> generators = NodeGenerators(seed=0, nodes=2)
        >>> with generators.turn(1):
        ...     first = torch.rand(1)
        >>> with generators.turn(1):
        ...     bool(first == torch.rand(1))
        False
        >>> torch.equal(outside, torch.get_rng_state())
        True
        """
        outside = generator_state(self._device)
        self.enter(node)
        try:
            yield
        finally:
            self.states[node] = generator_state(self._device)
            set_generator_state(self._device, outside)


class Workers:
    """Threads that share the nodes, one per core by default, with one torch thread each; the caller's is one of them.

    A node is always computed by one thread with one torch thread, so the result does not depend on the number of
    workers. Use it in a `with` statement: torch's thread count is restored at the end.
    """

    def __init__(self, number: int | None = None) -> None:
        if number is not None and whole_number(number, "the number of workers", least=None) < 1:
            raise InputError(
                f"A run needs at least one worker, but workers is {number}; leave it out for one per core."
            )
        self.number = number or cores()
        self.interrupted = False
        """Whether Ctrl-C came in the middle of a task: the other workers end after theirs, and nobody waits."""
        self._task: Callable[[Any, int], None] = lambda generation, seen: None
        self._generation = np.zeros(1, np.int64)
        self._helping: list[None] = []
        self._threads = torch.get_num_threads()
        torch.set_num_threads(1)
        self._tasks: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        # Daemons: at its end, Python would wait for others, after Ctrl-C too.
        self._others = [
            Thread(target=_work, args=(self._tasks,), name=WORKER, daemon=True) for _ in range(self.number - 1)
        ]
        for thread in self._others:
            thread.start()
        keep_freed_memory()

    def run(self, task: Callable[[int], None], tasks: int) -> None:
        """Call task(0) .. task(tasks - 1), each on one of the workers; the first error is raised here."""
        if tasks == 0:
            return
        turn = count()

        def work() -> None:
            while not self.interrupted and (k := next(turn)) < tasks:
                task(k)

        others = [self._submit(work) for _ in range(min(self.number, tasks) - 1)]
        try:
            try:
                work()
            except Exception:
                wait(others)
                raise
            wait(others)
        except KeyboardInterrupt:
            self.interrupted = True
            raise
        for done in others:
            done.result()

    def assist(self, task: Callable[[Any, int], None], helpers: int) -> None:
        """Call task(generation, seen) on so many other workers and wait for none: one that is late finds nothing to do.

        A task that has nothing left to do waits for a moment, without Python, until generation[0] is no longer `seen`:
        then there is a new task. To wake a thread takes as long as the gradients of a small model.
        """
        self._task = task
        self._generation[0] += 1
        for _ in range(helpers - len(self._helping)):
            self._helping.append(None)
            self._submit(self._help)

    def _submit(self, task: Callable[[], None]) -> "Future[None]":
        """Let another worker do it."""
        done: Future[None] = Future()

        def attempt() -> None:
            try:
                task()
            except BaseException as error:
                done.set_exception(error)
            else:
                done.set_result(None)

        self._tasks.put(attempt)
        return done

    def _help(self) -> None:
        seen = -1
        while self._generation[0] != seen and not self.interrupted:
            seen = int(self._generation[0])
            self._task(self._generation, seen)
        self._helping.pop()

    @contextmanager
    def torch_threads(self) -> Iterator[None]:
        """Let torch use as many threads as before inside the `with`.

        Not for small tensors: waiting for each other costs more, and afterwards torch's threads keep a core busy.
        """
        torch.set_num_threads(self._threads)
        try:
            yield
        finally:
            torch.set_num_threads(1)

    def limit_to_one(self) -> None:
        """Use one worker from now on."""
        self.number = 1

    def __enter__(self) -> "Workers":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for _ in self._others:
            self._tasks.put(None)
        if self.interrupted:
            atexit.register(_leave, self._others)
        else:
            for thread in self._others:
                thread.join()
        torch.set_num_threads(self._threads)


def _work(tasks: "SimpleQueue[Callable[[], None] | None]") -> None:
    """What a worker's thread does."""
    torch.set_num_threads(1)
    # A thread adopts the count when it first asks for it: ask now, before the process-wide value changes.
    torch.get_num_threads()
    while (task := tasks.get()) is not None:
        task()


def _leave(workers: list[Thread]) -> None:
    """At exit: a worker in the middle of an operation must end before torch is taken apart, or the process at once."""
    if getattr(sys, "last_type", None) is KeyboardInterrupt and any(thread.is_alive() for thread in workers):
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
        os._exit(128 + signal.SIGINT)
    for thread in workers:
        thread.join()


def cores() -> int:
    """The number of cores that this process may use; where the system cannot tell (macOS), all of them."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def keep_freed_memory() -> None:
    """Let glibc reuse freed memory instead of returning it to the system and requesting it again at every layer.

    Without this, mapping and unmapping activations costs 15 to 30 % on wide networks. It holds for the rest of the
    process: memory once used is kept, and all threads share one heap. Other C libraries have no such setting.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _ALWAYS_FROM_THE_HEAP)
        mallopt(_M_TRIM_THRESHOLD, _ALWAYS_FROM_THE_HEAP)
        # The thresholds do not apply to the heaps that threads would get of their own.
        mallopt(_M_ARENA_MAX, 1)
