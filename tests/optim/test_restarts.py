"""Restarts on real processes: the same nodes elsewhere, other nodes, faults, and signals."""

import re
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.optim import restarts
from tests.optim.nodes import run, values

pytestmark = pytest.mark.timeout(400)

CHAIN = restarts.CHAIN


def test_a_restart_on_other_ranks_ends_with_the_same_bits(tmp_path: Path) -> None:
    whole = values(4, restarts.stop_half_way, str(tmp_path))
    for node, results in values(4, restarts.go_on_elsewhere, str(tmp_path)):
        for method, result in results.items():
            assert torch.equal(result, whole[node][method]), method


@pytest.fixture(scope="module")
def elastic(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    """Four nodes, of which one leaves; then a fifth joins the three."""
    directory = str(tmp_path_factory.mktemp("elastic"))
    return {
        "four": values(4, restarts.elastic, directory, CHAIN, 3),
        "three": values(3, restarts.elastic, directory, ("bonn", "oslo", "rome"), 6),
        "joined": values(4, restarts.elastic, directory, ("bonn", "oslo", "paris", "rome"), 8),
    }


def mean(vectors: list[Tensor]) -> Tensor:
    return torch.stack([v.double() for v in vectors]).mean(0)


METHODS = list(restarts.MAKERS)
CENTRED = [("KGT", "c"), ("LED", "y")]


@pytest.mark.parametrize("method", METHODS)
def test_a_site_leaves(elastic: dict[str, list[dict[str, Any]]], method: str) -> None:
    before = [elastic["four"][i][method] for i in (0, 2, 3)]
    after = [node[method] for node in elastic["three"]]
    assert [a["start"] for a in after] == [3, 3, 3]
    if method == "SluggishDSGD":
        x = mean([b["later"][: len(after[0]["x"])] for b in before]).float()
        assert all(torch.equal(a["x"], x) for a in after)
        return
    for a, b in zip(after, before, strict=True):
        assert torch.equal(a["all"], b["later"]), "x and buffers are kept"
        assert a["state"].keys() == b["end state"].keys()
        for name, kept in b["end state"].items():
            if (method, name) in CENTRED:
                expected = kept - mean([other["end state"][name] for other in before])
                assert torch.allclose(a["state"][name].double(), expected, atol=1e-6), "its mean is 0 among those left"
            else:
                assert torch.equal(a["state"][name], kept), name


@pytest.mark.parametrize("method", METHODS)
def test_a_site_joins_from_the_average(elastic: dict[str, list[dict[str, Any]]], method: str) -> None:
    before = [node[method] for node in elastic["three"]]
    after = [node[method] for node in elastic["joined"]]
    assert [a["start"] for a in after] == [6] * 4
    assert len({a["lr"] for a in after}) == 1
    assert after[2]["lr"] == 0.02 * 0.5
    assert torch.allclose(after[2]["x"].double(), mean([b["later"][: len(b["x"])] for b in before]), atol=1e-7)
    floats = slice(0, len(before[0]["all"]) - 1)  # the last number counts batches
    assert torch.allclose(after[2]["all"][floats].double(), mean([b["later"] for b in before])[floats], atol=1e-7)
    for name, vector in after[2]["state"].items():
        assert torch.allclose(vector.double(), mean([b["end state"][name] for b in before]), atol=1e-6), name
    if method != "SluggishDSGD":
        for a, b in zip((after[0], after[1], after[3]), before, strict=True):
            assert torch.equal(a["all"], b["later"])


def test_the_mean_of_buffers_runs_over_the_holders_where_they_are_finite() -> None:
    mask = torch.full((2, 2), -torch.inf).triu(1)
    found = values(4, restarts.buffers)
    assert found[3]["statistics"].tolist() == pytest.approx([5 / 3, 2.0, 7.0]), "over 0, 1 and 2; over 0 and 2; its own"
    for rank, buffers in enumerate(found):
        assert torch.equal(buffers["mask"], mask)
        assert buffers["largest"] == torch.finfo(torch.float64).min
        assert buffers["batches"] == rank
        if rank < 3:
            own = torch.tensor([rank**2, rank**2 if rank != 1 else torch.nan, torch.nan])
            assert torch.equal(buffers["statistics"].nan_to_num(-1), own.nan_to_num(-1)), "holders keep theirs"


@pytest.mark.parametrize("method", METHODS)
def test_training_goes_on_well_among_other_nodes(elastic: dict[str, list[dict[str, Any]]], method: str) -> None:
    for when in ("four", "three", "joined"):
        nodes = [node[method] for node in elastic[when]]
        assert all(n["later"].isfinite().all() for n in nodes)
        if "correction" in nodes[0]:
            largest = max(float(n["correction"].abs().max()) for n in nodes)
            off = float(mean([n["correction"] for n in nodes]).abs().max())
            assert off < 1e-6 * max(1.0, largest), "mean C = 0"
            assert largest > 1e-3 or method == "LED", "each C alone is not"  # LED has made no exchange yet
        if method == "AllReduceSGDm":
            assert all(torch.equal(n["x"], nodes[0]["x"]) for n in nodes)


@pytest.mark.parametrize("method", ["MomentumTracking", "DSGDm", "RelaySum", "AllReduceSGDm"])
def test_a_dead_peer_ends_every_survivor_at_once(tmp_path: Path, method: str) -> None:
    outcomes = run(4, restarts.dead, str(tmp_path), method, timeout=30)
    assert outcomes[1].code == -signal.SIGKILL
    for rank in (0, 2, 3):
        # Those who are not its neighbours name the neighbour that ended because of it.
        peer = r"Node \d \((kyiv|bonn|oslo|rome)\)" if rank == 3 or method == "AllReduceSGDm" else r"Node 1 \(kyiv\)"
        assert re.match(rf"{peer} closed the connection before round [4-8] was complete", outcomes[rank].value)


@pytest.mark.parametrize("method", ["MomentumTracking", "AllReduceSGDm"])
def test_a_silent_peer_ends_every_survivor_within_the_timeout(tmp_path: Path, method: str) -> None:
    outcomes = run(4, restarts.silent, str(tmp_path), method, timeout=30)
    sentences = [o.value for o in outcomes]
    silence = r"has been silent for 1 s: it did not (send|take) the message of"
    assert any(re.match(rf"Node 1 \(kyiv\) {silence} round [4-8]", s) for s in sentences), sentences
    for sentence in sentences:
        assert re.match(rf"Node \d \(\w+\) ({silence}|closed the connection before) round [4-8]", sentence), sentence


def test_a_signal_makes_all_nodes_save_the_same_round(tmp_path: Path) -> None:
    codes = values(4, restarts.told_to_stop, str(tmp_path))
    for case, (_, number, signalled) in restarts.SIGNALS.items():
        expected = [128 + (number if rank in signalled else signal.SIGTERM) for rank in range(4)]
        assert [code[case] for code in codes] == expected
        newest = {max(p.name for p in (tmp_path / case / f"node-{name}").glob("*.ckpt")) for name in CHAIN}
        assert newest == {"round-000000009.ckpt"}, "five rounds were made, and the signal needs four more to reach all"
    for results in values(4, restarts.whole_and_resumed, str(tmp_path)):
        for case, (whole, resumed) in results.items():
            assert torch.equal(whole, resumed), case


def test_a_second_signal_ends_a_node_that_waits(tmp_path: Path) -> None:
    waits, sleeps = run(2, restarts.impatient, str(tmp_path))
    assert waits.code == 128 + signal.SIGTERM
    assert "Node 0 (bonn) closed the connection before round" in sleeps.value, "it ended while the other one slept"


def test_nodes_that_are_rounds_apart_keep_a_common_round(tmp_path: Path) -> None:
    first, *_, last = values(4, restarts.slow_end, str(tmp_path))
    assert 0 < first[0] <= 3, "as many rounds ahead as the chain has edges, and not more"
    assert first[1] <= 3 + 2 >= last[1]
