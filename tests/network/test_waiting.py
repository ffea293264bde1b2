"""The thread that names slow peers: it speaks once per wait and holds on to nothing."""

import logging
import threading
import time
import weakref

import pytest

from gossamer.errors import PeerError
from gossamer.network import waiting


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
    monkeypatch.setattr(waiting, "_watch", waiting._Watch())
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


def test_a_failed_wait_is_a_sentence_and_so_is_every_later_one():
    class Broken:
        def wait(self, timeout: object) -> None:
            raise RuntimeError("Connection closed by peer [127.0.0.1]:1")

    waits = waiting.Waiting(10)
    for _ in range(2):
        with pytest.raises(PeerError, match="Node 3 closed the connection before round 7 was complete"):
            waits.message(Broken(), 3, Site().name, 7)
