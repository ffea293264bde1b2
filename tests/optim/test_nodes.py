"""Optimizers on real processes: exactness, checkpoints, mixed precision, groups, averages, faults."""

import os
import re
import subprocess
import sys
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from gossamer.compression import Quantize
from gossamer.network.wire import HEADER_BYTES
from tests.optim import cases
from tests.optim.nodes import run, values

pytestmark = pytest.mark.timeout(400)

FOUR = [
    "overlap", "other_ranks", "coalesced", "bf16_wire", "compressed_messages", "network_verbs", "saved_and_loaded",
    "forgotten_model",
    "checkpoint", "short_parameters", "overflow", "growing", "own_groups", "late_group", "written_parameters",
    "probed", "averages", "unequal_start", "identical_gradients", "disagreements", "weighted", "wrapped", "two_by_two",
]  # fmt: skip


FIVE = ["equal_steps", "not_finite", "overflowing", "skipped", "poisoned", "root_of_silence", "unequal_steps"]
TWO = ["other_schedule", "lonely_message", "lonely_resend", "lonely_freeze", "silent", "absent"]


@cache
def _launch(n: int) -> list[dict[str, Any]]:
    """One launch serves all cases of n processes."""
    return values(n, cases.run_all, {2: TWO, 4: FOUR, 5: FIVE}[n], timeout=150)


def _returned(n: int, case: str) -> list[Any]:
    """What the processes returned for a case."""
    returned = [results[case] for results in _launch(n)]
    raised = [r for r in returned if isinstance(r, str) and r.startswith("Traceback")]
    assert not raised, raised[0]
    return returned


five, four, two = (partial(_returned, n) for n in (5, 4, 2))


def test_overlap_changes_no_bit() -> None:
    for results in four("overlap"):
        for method, (with_overlap, without) in results.items():
            assert torch.equal(with_overlap, without), method


def test_bits_do_not_depend_on_the_rank_of_a_node() -> None:
    results = four("other_ranks")
    for method in results[0]:
        for placement in (0, 1):
            assert sorted(r[method][placement][0] for r in results) == [0, 1, 2, 3]
        first, second = (dict(r[method][k] for r in results) for k in (0, 1))
        assert all(torch.equal(first[node], second[node]) for node in range(4)), method


def test_transfers_started_together_do_the_same() -> None:
    assert all(torch.equal(one_by_one, together) for one_by_one, together in four("coalesced"))


def test_compressed_messages_are_as_short_as_declared() -> None:
    for r in four("compressed_messages"):
        assert r["bytes"] == HEADER_BYTES + 2 * Quantize(bits=4).bytes(r["dim"])
        assert r["gap"] < 1e-5
        # Two of five steps send two vectors of float64 instead, each to two neighbours.
        assert r["longer"] == 2 * 2 * 2 * (8 * r["dim"] - Quantize(bits=4).bytes(r["dim"]))
        assert "leave out wire=" in r["bf16"]


def test_the_consensus_distance_is_what_it_is_called() -> None:
    for measured, expected in four("probed"):
        assert measured == pytest.approx(expected, rel=1e-5)
        assert expected > 0


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere threads cannot be told apart")
def test_the_threads_of_gloo_do_not_interrupt_training() -> None:
    for r in four("network_verbs"):
        usual = os.getpriority(os.PRIO_PROCESS, 0)
        gloo = {how for name, how in r["threads"] if name.startswith("gloo")}
        others = {how for name, how in r["threads"] if not name.startswith("gloo")}
        assert gloo == {(True, usual + 5)}, "once, however many networks there are"
        assert others == {(False, usual)}


def test_bf16_wire_keeps_the_mean() -> None:
    results = four("bf16_wire")

    def mean(name: str) -> torch.Tensor:
        return torch.stack([r[name] for r in results]).mean(0)

    # The wire rounds to 2^-9, the mean drifts no more than float32 arithmetic makes it drift anyway.
    drift, unavoidable = (float((mean(f"{k}y") - mean(f"{k}u")).abs().max()) for k in ("", "exact "))
    largest = max(float(r["u"].abs().max()) for r in results)
    assert drift < 5 * max(unavoidable, 2**-24 * largest)
    assert drift < 1e-2 * 2**-9 * largest
    assert float((mean("x") - (mean("start") - mean("moved"))).abs().max()) < 1e-5
    assert 0 < max(float((r["x"] - r["exact"]).abs().max()) for r in results) < 1e-2
    short, exact = results[0]["bytes"]
    assert 0.45 < short / exact < 0.7
    assert all("relayed sums" in r["relay"] for r in results)


def test_the_verbs_of_the_network() -> None:
    results = four("network_verbs")
    for rank, r in enumerate(results):
        sender = (rank - 2) % 4
        assert r["mixed"][0].tolist() == [(rank + sender) / 2] * 3
        assert r["mixed"][1].tolist() == [5 * (rank + sender)] * 3
        assert r["same"]
        assert torch.equal(r["average"], torch.arange(5.0) + 1.5)
        neighbours = [j for j in (rank - 1, rank + 1) if 0 <= j < 4]
        assert r["inbox"].flatten().tolist() == [10.0 * j for j in neighbours]
        assert r["by environment"] == 3 - rank
        assert r["collected"].tolist() == [10.0 * sum(neighbours)]
        assert r["stats"]["messages_sent"] == r["stats"]["messages_received"] == 1
        assert r["stats"]["bytes_sent"] == r["stats"]["bytes_received"] == 64 + 2 * 3 * 8
        assert list(r["stats"]["wait_seconds"]) == [sender]
        assert "has 5 nodes, but 4 processes take part" in r["wrong size"]
        assert "not 'int8'" in r["wrong wire"]
        assert "seconds above 0" in r["wrong timeout"]
        assert "nodes 0 to 3" in r["wrong node"]
        assert "no node called 'paris'" in r["wrong label"]
        assert "ranks 0 and 1 and 2 and 3 all say that they are node 0" in r["same node"]


def test_a_loaded_run_continues_with_the_same_bits_on_other_ranks() -> None:
    results = four("saved_and_loaded")
    for method in results[0]:
        whole = {r[method][0]: r[method][1] for r in results}
        for r in results:
            _, _, node, x, round = r[method]
            assert torch.equal(whole[node], x), method
            assert round == 8


def test_a_state_without_its_model_or_of_another_method_is_refused() -> None:
    for without_model, other_state, other_options in four("forgotten_model"):
        assert "not those that were saved" in without_model
        assert "holds ['born', 'mixed.0', 'mixed.1', 'signal', 'x', 'y']" in other_state
        assert "says nothing of betas, eps, gmax" in other_options


def test_distributed_checkpoint_keeps_every_nodes_values() -> None:
    assert four("checkpoint") == [{"untouched": True, "same": True}] * 4


def test_bf16_parameters_keep_float32_state() -> None:
    for r in four("short_parameters"):
        assert r == {"types": ["torch.float32"], "same": True, "finer": True}


def test_an_overflow_on_one_rank_leaves_no_one_waiting() -> None:
    results = four("overflow")
    assert [r["overflows"] for r in results] == [0, 0, 1, 0]
    assert all(r["finite"] and 0 < r["gap"] < 1 for r in results)
    assert [r["scale"] for r in results] == [8.0, 8.0, 4.0, 8.0]


def test_parameters_come_and_go() -> None:
    results = four("growing")
    for r in results:
        assert all(r[what] for what in ("frozen", "thawed", "stopped", "finite"))
        assert r["born"] == [2, 3]
        assert r["rounds"] == [9, 9]
        assert torch.allclose(r["joined"], results[0]["joined"], atol=0.05)


def test_parameter_groups_of_their_own() -> None:
    for r in four("own_groups"):
        assert torch.allclose(r["together"], r["apart"], rtol=1e-6, atol=1e-7)


def test_a_later_parameter_group_makes_a_first_step_of_its_own() -> None:
    for r in four("late_group"):
        assert torch.equal(r["together"], r["apart"])


def test_parameters_written_between_steps_are_noticed() -> None:
    for r in four("written_parameters"):
        for how in ("copy", "part"):
            refused, finite = r[how]
            assert "call resend() on all nodes" in refused, how
            assert finite
        assert "call resend() on all nodes" in r["averaged"]
    for rank, r in enumerate(four("written_parameters")):
        wanted = ((rank - 1) % 4 + rank + (rank + 1) % 4) / 3
        assert torch.allclose(r["mixed"], torch.tensor(wanted))


def test_averages() -> None:
    results = four("averages")
    mean = torch.stack([r["own"] for r in results]).mean(0)
    after = torch.stack([r["before"] for r in results]).mean(0)
    running = [torch.stack([r["running"][k] for r in results]).mean(0) for k in (0, 2)]
    for r in results:
        assert torch.allclose(r["during"], mean, atol=1e-7)
        assert r["back"]
        assert torch.allclose(r["after"], after, atol=1e-7)
        assert torch.equal(r["after"], results[0]["after"])
        assert torch.allclose(r["running"][1], running[0], atol=1e-6)
        assert int(r["running"][3]) == 5
        assert r["finite"]
        assert r["without optimizer"] == 1.5
        torch.testing.assert_close(r["mask"], torch.tensor([-torch.inf, 5 / 3, 2e38]))  # node 1 has a NaN there
    assert not torch.equal(results[0]["running"][0], results[1]["running"][0]), "buffers stay with their node"


def test_models_are_made_equal_at_the_start() -> None:
    assert all(r["equal"] for r in four("unequal_start"))


def test_identical_first_gradients_are_refused() -> None:
    for r in four("identical_gradients"):
        assert "same first gradient" in r["same"]
        assert "give the optimizer equal_gradients='allow'" in r["same"]
        assert r["different"] == r["zero"] == r["meant"] == ""


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("graph", ["graph", "ring", "star", "rank 2"]),
        ("lr", ["lr", "0.02", "rank 2: 0.1"]),
        ("momentum", ["beta", "0.9", "rank 2: 0.5"]),
        ("method", ["method", "Momentum Tracking", "rank 2: ABm"]),
        ("wire", ["wire format", "rank 2: bf16"]),
        ("shapes", ["parameter weight", "rank 2: [5, 3]"]),
        ("rounds", ["round", "rank 2: 7"]),
        ("node_weight", ["node_weight", "2"]),
    ],
)
def test_disagreement_is_named(what: str, words: list[str]) -> None:
    for results in four("disagreements"):
        assert all(word in results[what] for word in words), results[what]


def test_weights_by_data_size_scale_the_gradient() -> None:
    for by_weight, by_loss in four("weighted"):
        assert torch.allclose(by_weight, by_loss, rtol=1e-5, atol=1e-7)


def test_data_parallel_over_nodes_is_refused() -> None:
    for r in four("wrapped"):
        for how in ("outside", "DDP later"):
            assert "DistributedDataParallel over the ranks [0, 1, 2, 3], which are different nodes" in r[how], how
            assert "GossipStrategy" in r[how]
            assert "GossipTrainer" in r[how]
        assert "FSDP over the ranks [0, 1, 2, 3], which are different nodes" in r["FSDP later"]
        assert r["inside"] == r["DDP inside"] == r["DDP meant"] == ""
        assert "who talks to whom" in r["no graph"]


@pytest.mark.slow
def test_the_first_fsdp_is_refused_too() -> None:
    for sentence in values(4, cases.first_fsdp):
        assert "FSDP over the ranks [0, 1, 2, 3], which are different nodes" in sentence


def test_two_nodes_of_two_processes() -> None:
    results = four("two_by_two")
    for r in results:
        assert torch.allclose(r["ddp"], r["whole"], atol=1e-6)
        assert torch.allclose(r["fsdp"], r["whole"], atol=1e-6)
        assert "mesh['node']" in r["mesh"]
    assert not torch.equal(results[0]["whole"], results[2]["whole"])


def test_a_step_size_out_of_step_is_named() -> None:
    first, second = two("other_schedule")
    assert "node 1 trains with other settings" in first.lower()
    assert "its step size is 0.5, here it is 0.02" in first
    assert "its step size is 0.02, here it is 0.5" in second


def test_a_message_too_many_is_named() -> None:
    for sentence in two("lonely_message"):
        assert "must happen on all nodes in the same round" in sentence


def test_a_node_that_resends_alone_is_named() -> None:
    first, second = two("lonely_resend")
    assert "Node 1 is in round 2 while this node is in round 3" in first
    assert "Node 0 is in round 3 while this node is in round 2" in second
    assert "resend() and average_() in the same round" in first


def test_a_node_that_freezes_alone_is_named() -> None:
    others, alone = two("lonely_freeze")
    assert list(others) == ["MomentumTracking", "DSGD", "RelaySum", "AllReduceSGDm"]
    for method, sentence in others.items():
        assert sentence.startswith("Node 1 has changed before round "), method
    for method, sentence in alone.items():
        assert sentence.startswith("Node 0 has not changed before round "), method
        assert "on all nodes in the same round" in sentence


def test_a_node_that_stops_early_is_named() -> None:
    survivor, _ = run(2, cases.stops_early)
    assert survivor.code == 0, survivor.error
    first, again, at_close = survivor.value
    # Whether the last message that left still arrived is a matter of luck.
    assert re.match("Node 1 closed the connection before round [34] was complete", first)
    assert again == first
    assert at_close == ""


SCRIPT = """
import os
import torch
import torch.distributed as dist
import gossamer as gs

dist.init_process_group("gloo")
rank = dist.get_rank()
model = torch.nn.Linear(2, 1)
optimizer = gs.optim.MomentumTracking(model.parameters(), lr=0.01, topology="chain")
inputs = torch.ones(4, 2) + rank
with gs.optim.Checkpoints("checkpoints", model, optimizer) as checkpoints:
    for r in checkpoints.rounds(9):
        if (rank, r) == (1, 5):
            os._exit(0)
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()
"""


def test_a_script_that_loses_a_node_shows_one_traceback_and_the_sentence(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    store = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    told = {**os.environ, "MASTER_ADDR": "localhost", "MASTER_PORT": str(store.port), "WORLD_SIZE": "2",
            "TORCHELASTIC_USE_AGENT_STORE": "True"}  # fmt: skip
    first, second = (
        subprocess.Popen(
            [sys.executable, "train.py"], cwd=tmp_path, env={**told, "RANK": rank}, stderr=subprocess.PIPE, text=True
        )
        for rank in "01"
    )
    with first, second:
        try:
            _, said = first.communicate(timeout=200)
        finally:
            first.kill()
            second.kill()
    assert first.returncode == 1, said
    assert said.count("Traceback") == 1, said
    assert re.search("PeerError: Node 1 closed the connection before round [56] was complete", said), said


def test_a_silent_node_is_named() -> None:
    survivor, _ = two("silent")
    assert "Node 1 (rome) has been silent for 1.2 s" in survivor["said"]
    assert "round 3" in survivor["said"]
    assert any("still waiting for node 1 (rome) to send the message of round 3" in x for x in survivor["log"])
    assert survivor["stats"]["wait_seconds"]["rome"] > 1.0


def test_a_node_that_does_not_come_is_named() -> None:
    assert "Rank 1 did not come" in two("absent")[0]


def test_a_number_that_is_not_finite_ends_the_run_before_it_is_sent() -> None:
    results = five("not_finite")
    for method in results[0]:
        sentences = {r[method][0] for r in results}
        assert len(sentences) == 1, (method, sentences)
        value = {"DSGD on ring": "inf", "RelaySum on chain": "-inf"}.get(method, "nan")
        assert sentences.pop().startswith(
            f"The run diverged: the gradient of node 2 is {value} in round 3 (parameter group 1); try a step size below"
        ), method
        assert max(seconds for _, seconds, _ in (r[method] for r in results)) < 10
        assert all(r[method][2].isfinite().all() for r in results), method


def test_finite_gradients_whose_momentum_overflows_are_not_sent() -> None:
    assert {s.partition(" is ")[0] for s in five("overflowing")} == {"The run diverged: the model of node 2"}


def test_a_round_without_a_finite_gradient_can_be_skipped() -> None:
    results = five("skipped")
    assert all(r["same"] for r in results)
    assert [r["skipped"] for r in results] == [0, 0, 1, 0, 0]


def test_numbers_that_arrive_and_are_not_finite_are_not_passed_on() -> None:
    for rank, sentences in enumerate(five("poisoned")):
        for method, sentence in sentences.items():
            if rank != 2:
                assert sentence.startswith("Node 2 sent numbers that are not finite in round 2"), (method, sentence)


def test_a_timeout_names_the_root_and_not_a_neighbour_that_waits_itself() -> None:
    for sentence, seconds in five("root_of_silence"):
        assert sentence.startswith("Node 2 has been silent for"), sentence
        assert "or waits for another" not in sentence
        assert seconds < 2 + 5


def test_a_step_more_or_less_is_noticed_by_all() -> None:
    assert five("equal_steps") == [""] * 5
    for results in five("unequal_steps"):
        for case, (at_step, at_close) in results.items():
            sentence = at_step or at_close
            assert "node 2" in sentence.lower() or "this node has made its last step" in sentence or (
                "has made its last step, but this node" in sentence
            ), (case, at_step, at_close)  # fmt: skip


def test_a_node_lost_during_an_average_is_named() -> None:
    assert re.match("Node 1 closed the connection before round [012] was", run(2, cases.lost_average)[0].value)


@pytest.mark.parametrize("collected", [False, True])
def test_a_slow_rank_does_not_lose_the_last_message(collected: bool) -> None:
    assert values(3, cases.slow_rank, collected) == [3, 3, 3]
