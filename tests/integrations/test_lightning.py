"""Lightning on four real processes: the plain loop's trajectory, the same bits after kill -9, wrong ways refused."""

from importlib.util import find_spec
from typing import Any

import pytest
import torch

from tests.integrations.launch import made_by

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.skipif(find_spec("lightning") is None, reason="pip install 'gossamer[lightning]'"),
]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    out = tmp_path_factory.mktemp("lightning")
    return {"out": out, **made_by("lightning_runs", out)}


def test_sites_of_unequal_size_follow_the_plain_loop(runs: dict[str, Any]) -> None:
    for r in runs["whole"]:
        assert isinstance(r, dict), runs["printed"]
        assert len(r["trace"]) == 12
        assert torch.equal(r["trace"], r["plain"])
        assert r["kept"], "validate() replaces no model by that of rank 0"
    assert len({tuple(r["trace"][-1].tolist()) for r in runs["whole"]}) == 4


def test_the_models_can_be_averaged_after_the_training(runs: dict[str, Any]) -> None:
    mean = torch.stack([r["trace"][-1] for r in runs["whole"]]).mean(0)
    for r in runs["whole"]:
        assert torch.equal(r["average"], runs["whole"][0]["average"])
        torch.testing.assert_close(r["average"], mean)


def test_a_killed_run_resumes_to_the_same_bits(runs: dict[str, Any]) -> None:
    assert runs["killed"][2] == "signal 9"
    for rank, (whole, again) in enumerate(zip(runs["whole"], runs["resumed"], strict=True)):
        assert isinstance(again, dict), runs["printed"]
        assert [len(again[where]) for where in ("middle", "end")] == [8, 6], "from steps 4 and 6 of 12"
        for where in ("middle", "end"):
            assert torch.equal(again[where], whole["trace"][-len(again[where]) :]), f"rank {rank}, {where}"
        lacking = f"node {rank} has no file" if rank else "another node has no file"
        assert f"is not complete: {lacking}" in again["refused"]


def test_statistics_of_all_nodes_are_logged(runs: dict[str, Any]) -> None:
    header, *rows = (runs["out"] / "whole/lightning_logs/version_0/metrics.csv").read_text().splitlines()
    column = header.split(",").index("gossip/messages_sent/node-3")
    sent = [float(row.split(",")[column]) for row in rows if row.split(",")[column]]
    assert len(sent) == 4
    assert sent == sorted(sent)
    assert sent[0] > 0


def test_ddp_and_other_optimizers_are_refused(runs: dict[str, Any]) -> None:
    for r in runs["wrong"]:
        assert "wrapped in DistributedDataParallel over the ranks [0, 1, 2, 3]" in r["ddp"], runs["printed"]
        assert "GossipStrategy" in r["ddp"]
        assert "returned a SGD" in r["other optimizer"]
