"""Waiting for peers: slow ones are named once by a thread that holds on to nothing, lost ones may be done without."""

import gc
import logging
import threading
import time
import traceback
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Literal

import pytest
import torch
import torch.distributed as dist
from torch.distributed import HashStore, PrefixStore

from gossamer import compression, topology
from gossamer.errors import DivergenceError, PeerError
from gossamer.network import DistributedNetwork, faults, waiting
from gossamer.network.faults import Board, Fault
from tests.processes import start


class Site:
    """Whose method names peers, as a network does."""

    def name(self, node: int) -> str:
        return f"node {node}"


class Slow:
    """Work that takes a while."""

    def wait(self, timeout: object) -> None:
        time.sleep(0.1)


def test_a_slow_peer_is_named_once_and_the_network_can_go(monkeypatch, caplog):
    monkeypatch.setattr(waiting, "_POLL", 0.001)
    monkeypatch.setattr(waiting, "SLOW", 0.02)
    monkeypatch.setattr(waiting, "_watchdog", waiting._Watchdog())
    site = Site()
    gone = weakref.ref(site)
    with caplog.at_level(logging.WARNING, "gossamer"):
        for round in (7, 8):
            waiting.Waiting(10).message(Slow(), 3, site.name, round)
    said = [record.getMessage().split(" after")[0] for record in caplog.records]
    assert said == [f"still waiting for node 3 to send the message of round {round}" for round in (7, 8)]
    del site
    deadline = time.monotonic() + 10
    while gone() is not None and time.monotonic() < deadline:
        time.sleep(0.01)  # the thread may be looking just now
    assert gone() is None
    assert any(thread.name == "gossamer-watch" for thread in threading.enumerate())


class Late:
    """A board that answers late, and a message that is there as soon as the board is asked."""

    def __init__(self) -> None:
        self.asked = threading.Event()

    def post(self, peer: int, round: int) -> None:
        self.asked.set()
        time.sleep(0.5)
        print("answered", flush=True)

    def wait(self, timeout: object) -> None:
        self.asked.wait(10)


def _end_while_the_watchdog_asks() -> None:
    waits, board = waiting.Waiting(10), Late()
    waits.board, waits._after = board, 0.0  # type: ignore[assignment]
    waits.message(board, 3, str, 7)


def _end_while_a_question_is_open() -> None:
    waiting._watchdog.start()
    faults.ANSWER = 0.1
    Board(HashStore(), "here", 0, 4)._soon(lambda: Late().post(1, 7))


@pytest.mark.parametrize("work", [_end_while_the_watchdog_asks, _end_while_a_question_is_open])
def test_a_process_ends_after_the_answer_of_the_store(work: Callable[[], None], tmp_path: Path) -> None:
    """A thread that came back from the store while Python ends would abort the process."""
    process = start(tmp_path / "printed", work)
    process.join(60)
    assert (process.exitcode, (tmp_path / "printed").read_text()) == (0, "answered\n")


def test_a_failed_wait_is_a_sentence_and_so_is_every_later_one():
    class Broken:
        def wait(self, timeout: object) -> None:
            raise RuntimeError("Connection closed by peer [127.0.0.1]:1")

    waits = waiting.Waiting(10)
    for _ in range(2):
        with pytest.raises(PeerError, match="Node 3 closed the connection before round 7 was complete") as caught:
            waits.message(Broken(), 3, Site().name, 7)
        assert "".join(traceback.format_exception(caught.value)).count("Traceback") == 1


def test_without_a_board_a_timeout_does_not_accuse():
    class Late:
        def wait(self, timeout: object) -> None:
            raise RuntimeError("Timed out waiting 10000ms for recv operation to complete")

    with pytest.raises(PeerError, match="Node 3 has been silent for 10 s, or waits for another: it did not send"):
        waiting.Waiting(10).message(Late(), 3, Site().name, 7)


def test_garbage_on_the_board_is_no_fault_and_no_wait():
    store = HashStore()
    boards = [Board(store, "here", node, 4) for node in range(4)]
    place = PrefixStore("here", store)
    for text in ("no number", '["a", {}, 1]', "[" * 9, "[" * 100_000, "[Infinity, 1, 1]", "[4, 1, 1]", "[-2, 1, 1]"):
        place.set("wait/1", text)
        assert boards[0].root(1, 7) == (Fault("silent", 1, 7), True), text
    for text in (
        "{}", "[1, 2]", '["gradient", "x", 1, 0, 0, 0.0]', '["nonsense", 1, 1, 0, 0, 0.0]', "[" * 100_000,
        '["silent", Infinity, 1, 0, 0, 0.0]', '["silent", 4, 1, 0, 0, 0.0]', '["silent", -1, 1, 0, 0, 0.0]',
        '["loss", 1, 1, 0, 3, 0.0]', '["loss", 1, 1, 0, 256, 0.0]', '["link", 1, 1, 1048576, 0, 0.0]',
    ):  # fmt: skip
        place.set("fault", text)
        assert boards[0].first() is None, text


def test_the_chain_of_waits_leads_to_its_root_or_to_a_link():
    store = HashStore()
    boards = [Board(store, "here", node, 5) for node in range(5)]
    boards[1].post(2, round=6)
    boards[4].post(1, round=7)
    assert boards[0].root(4, 8) == (Fault("silent", 2, 6), True)
    boards[2].post(1, round=6)
    assert boards[0].root(4, 8) == (Fault("link", 1, 6, 2), True)
    assert boards[3].report(Fault("closed", 2, 6)) == boards[0].report(Fault("silent", 4, 8)) == Fault("closed", 2, 6)
    boards[1].retract()
    assert boards[0].root(4, 8) == (Fault("silent", 1, 7), True)


class Gone(HashStore):
    """A store that answers no more; how often it was asked."""

    asked = 0

    def check(self, keys: list[str]) -> bool:
        self.asked += 1
        time.sleep(3)
        return False


def test_a_store_that_does_not_answer_is_waited_for_once(monkeypatch):
    monkeypatch.setattr(faults, "ANSWER", 0.1)
    board, gone = Board(HashStore(), "here", 0, 4), Gone()
    board._store = gone
    began = time.monotonic()
    assert board.first() is None
    assert board.root(1, 7) == (Fault("silent", 1, 7), False)
    assert board.report(Fault("silent", 1, 7)) == Fault("silent", 1, 7)
    assert board.first() is None
    assert time.monotonic() - began < 2
    assert gone.asked == 1


def _net(rank: int, store: HashStore, wire: Literal["bf16"] | None) -> DistributedNetwork:
    options = dist.ProcessGroupGloo._Options()
    options._timeout = timedelta(seconds=10)
    options._devices = [dist.ProcessGroupGloo.create_device(hostname="127.0.0.1", lazy_init=False)]
    group = dist.ProcessGroupGloo(store, rank, 2, options)
    net = DistributedNetwork(topology.complete(2), group, node=rank, wire=wire, timeout=5.0)
    net.waiting.rebuilds = True
    net.join()
    return net


@pytest.mark.parametrize("is_under_way", [True, False])
@pytest.mark.parametrize("kind", ["exact", "bf16", "compressed"])
def test_a_step_that_loses_a_peer_is_finished_with_the_own_vectors(kind: str, is_under_way: bool) -> None:
    store = HashStore()
    with ThreadPoolExecutor(2) as pool:
        mine, other = pool.map(lambda rank: _net(rank, store, "bf16" if kind == "bf16" else None), range(2))
    compressor = compression.get("quantize:bits=4")
    v = torch.linspace(-1, 1, 600)
    sent = compressor.compress(v) if kind == "compressed" else v
    pending = mine.mix(sent, round=0) if is_under_way else None
    other.abandon()
    del other
    gc.collect()
    if pending is None:
        with pytest.raises(PeerError, match="Node 1 closed the connection"):
            mine.mix(sent, round=0).wait()
    mine.waiting.finishes_alone = True
    (mixed,) = (pending or mine.mix(sent, round=0)).wait()
    assert torch.equal(mixed, sent.values if isinstance(sent, compression.Compressed) else v)
    assert mine.failed
    assert torch.equal(mine.average(v, round=1), v)
    if kind == "exact":
        assert torch.equal(mine.exchange(v.view(1, -1), round=1).wait()[0], torch.zeros(1, 600))
    for send in (mine.mix, mine.average, *([mine.exchange] if kind == "exact" else [])):
        with pytest.raises(DivergenceError, match="the model of node 0"):
            send((v / 0.0).expand(1, -1), round=1)
