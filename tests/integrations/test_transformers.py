"""Hugging Face on four real processes: the plain loop's trajectory, the same bits after kill -9, wrong ways refused."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("transformers", reason="needs Transformers")
pytest.importorskip("accelerate", reason="needs Accelerate")

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """All runs, made by one program that imports Transformers once."""
    out = tmp_path_factory.mktemp("transformers")
    program = [sys.executable, "-m", "tests.integrations.transformers_runs", str(out)]
    done = subprocess.run(program, cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=880)
    assert done.returncode == 0, done.stderr
    return {"printed": done.stdout, **torch.load(out / "results.pt", weights_only=True)}


def test_sites_of_unequal_size_follow_the_plain_loop(runs: dict[str, Any]) -> None:
    for r in runs["whole"]:
        assert isinstance(r, dict), runs["printed"]
        assert len(r["trace"]) == 12, "two epochs of the largest site"
        assert torch.equal(r["trace"], r["plain"])
        assert r["logged"] == [10, 20]
    assert "launch your script with" not in runs["printed"], "nobody is told to use DDP"


def test_every_node_saves_its_own_model(runs: dict[str, Any]) -> None:
    assert [r["saved"] for r in runs["whole"]] == [True] * 4
    assert len({tuple(r["trace"][-1].tolist()) for r in runs["whole"]}) == 4


def test_accelerate_leaves_model_and_data_alone(runs: dict[str, Any]) -> None:
    assert [r["accelerate"] for r in runs["whole"]] == [{"same": True, "left": "4"}] * 4


def test_a_killed_run_resumes_to_the_same_bits(runs: dict[str, Any]) -> None:
    assert runs["killed"][2] == "signal 9"
    for rank, (whole, again) in enumerate(zip(runs["whole"], runs["resumed"], strict=True)):
        assert isinstance(again, dict), runs["printed"]
        assert len(again["trace"]) == 7, "from step 5 of 12, though rank 1 has an incomplete checkpoint of step 7"
        assert torch.equal(again["trace"], whole["trace"][-7:]), rank
        assert again["kept"] == ["checkpoint-12"]


def test_the_wrong_ways_are_refused(runs: dict[str, Any]) -> None:
    for r in runs["wrong"]:
        assert "wrapped in DistributedDataParallel over the ranks [0, 1, 2, 3]" in r["Trainer"], runs["printed"]
        assert "GossipTrainer" in r["Trainer"]
        assert "needs an optimizer of gossamer.optim" in r["other optimizer"]
    for r in runs["resumed"]:
        assert all("give save_strategy='steps'" in sentence for sentence in r["said"])
        assert len(r["said"]) == 2
