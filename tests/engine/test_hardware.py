import os
import threading
import time

import pytest
import torch

from gossamer.engine import hardware
from gossamer.engine.hardware import Workers, cores


def test_every_task_is_done_once_and_each_worker_has_one_torch_thread():
    before = torch.get_num_threads()
    done: list[int] = []
    threads: set[int] = set()
    meeting = threading.Barrier(2, timeout=20)

    def task(k: int) -> None:
        if k < 2:
            meeting.wait()
        done.append(k)
        threads.add(torch.get_num_threads())

    with Workers(2) as workers:
        workers.run(task, 20)
        workers.run(task, 0)
    assert sorted(done) == list(range(20))
    assert threads == {1}
    assert torch.get_num_threads() == before


def test_errors_in_a_task_reach_the_caller():
    def task(k: int) -> None:
        raise KeyError(k)

    with Workers(2) as workers, pytest.raises(KeyError):
        workers.run(task, 3)


def test_after_an_interrupt_nobody_waits_for_what_other_workers_compute(monkeypatch):
    """Also if it comes when this thread has nothing left to do but to wait for them."""
    both, end = threading.Barrier(2, timeout=20), threading.Event()

    def task(k: int) -> None:
        both.wait()
        if threading.current_thread() is not threading.main_thread():
            end.wait(60)

    def interrupt(others: list[object]) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(hardware, "wait", interrupt)
    began = time.monotonic()
    try:
        with pytest.raises(KeyboardInterrupt), Workers(2) as workers:
            workers.run(task, 2)
        assert workers.interrupted
        assert time.monotonic() - began < 20
    finally:
        end.set()


def test_one_worker_per_core_by_default():
    with Workers() as workers:
        assert workers.number == cores()
        workers.limit_to_one()
        names: set[str] = set()
        workers.run(lambda k: names.add(threading.current_thread().name), 10)
        assert len(names) == 1


def test_cores_are_counted_where_a_process_cannot_be_bound_to_some(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3, 5, 6}, raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 7)
    assert cores() == 3
    monkeypatch.delattr(os, "sched_getaffinity")
    assert cores() == 7
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert cores() == 1
