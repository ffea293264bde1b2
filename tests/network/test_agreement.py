import numpy as np
import pytest
from torch.distributed import HashStore

from gossamer import topology
from gossamer.errors import GossamerError, PeerError
from gossamer.network import DistributedNetwork, agreement
from gossamer.network.agreement import check_same, own_node, tell_all
from gossamer.network.waiting import Waiting

SITES = topology.from_edges([("1", "2"), ("2", "3")])


def test_a_label_of_digits_wins_over_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    for node, label in enumerate(("1", "2", "3")):
        monkeypatch.setenv("GOSSAMER_NODE", label)
        assert own_node(SITES, None, 0) == node
    monkeypatch.setenv("GOSSAMER_NODE", "0")
    assert own_node(SITES, None, 2) == 0, "no label, so a number"
    monkeypatch.setenv("GOSSAMER_NODE", "2")
    assert own_node(topology.ring(3), None, 0) == 2


def test_any_whole_number_is_a_number() -> None:
    node = own_node(topology.ring(3), np.int64(1), 0)  # type: ignore[arg-type]
    assert (node, type(node)) == (1, int)
    with pytest.raises(GossamerError, match=r"node=1.0 names no node; give a number"):
        own_node(topology.ring(3), 1.0, 0)  # type: ignore[arg-type]


@pytest.mark.parametrize("timeout", [float("inf"), float("nan"), 1e10, 0])
def test_a_timeout_that_no_clock_can_count_is_refused(timeout: float) -> None:
    with pytest.raises(GossamerError, match="number of seconds above 0, at most"):
        DistributedNetwork(topology.complete(1), timeout=timeout)


def test_a_timeout_may_be_numpys() -> None:
    assert DistributedNetwork(topology.complete(1), timeout=np.int64(5)).waiting.timeout.total_seconds() == 5


def test_nodes_that_disagree_are_a_failure_among_peers() -> None:
    check_same([{"lr": "0.05"}] * 3, ours=1)
    with pytest.raises(PeerError, match=r"do not agree on the lr \(rank 0: 0.05; rank 2: 0.01; this is rank 1\)"):
        check_same([{"lr": "0.05"}, {"lr": "0.05"}, {"lr": "0.01"}], ours=1)


class Pair:
    """The process group of two ranks, of which this process is the first."""

    group_name = "pair"

    def size(self) -> int:
        return 2

    def rank(self) -> int:
        return 0


@pytest.mark.parametrize("text", ["garbage", "[1, 2]", "[" * 100_000])
def test_what_a_rank_did_not_say_is_told_in_a_sentence(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    store = HashStore()
    monkeypatch.setattr(agreement, "_boards", {"pair": store})
    store.set(f"{agreement._calls['pair']}/1", text)
    with pytest.raises(PeerError, match="What rank 1 said to the others cannot be read; install the same version"):
        tell_all(Pair(), {}, Waiting(5), "the meeting")  # type: ignore[arg-type]
