"""Hugging Face on four real processes: the plain loop's trajectory, the same bits after kill -9, wrong ways refused."""

from importlib.util import find_spec
from typing import Any

import pytest
import torch

from tests.integrations.launch import made_by

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        find_spec("transformers") is None or find_spec("accelerate") is None,
        reason="pip install 'gossamer[transformers]'",
    ),
]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return made_by("transformers_runs", tmp_path_factory.mktemp("transformers"))


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


def test_the_models_can_be_averaged_after_the_training(runs: dict[str, Any]) -> None:
    mean = torch.stack([r["trace"][-1] for r in runs["whole"]]).mean(0)
    for r in runs["whole"]:
        assert torch.equal(r["average"], runs["whole"][0]["average"])
        torch.testing.assert_close(r["average"], mean)


def test_accelerate_leaves_model_and_data_alone(runs: dict[str, Any]) -> None:
    assert [r["accelerate"] for r in runs["whole"]] == [{"same": True, "left": "4"}] * 4


def test_a_killed_run_resumes_to_the_same_bits(runs: dict[str, Any]) -> None:
    assert runs["killed"][2] == "signal 9"
    for rank, (whole, again) in enumerate(zip(runs["whole"], runs["resumed"], strict=True)):
        assert isinstance(again, dict), runs["printed"]
        assert len(again["trace"]) == 7, "from step 5 of 12, though rank 1 has an incomplete checkpoint of step 7"
        assert torch.equal(again["trace"], whole["trace"][-7:]), rank
        assert again["kept"] == ["checkpoint-12"]


def test_a_finished_run_that_is_resumed_makes_no_step(runs: dict[str, Any]) -> None:
    """The epochs of rank 2, of five steps, do not divide 12."""
    for again in runs["resumed"]:
        assert isinstance(again, dict), runs["printed"]
        assert (again["steps after the last"], again["kept its model"]) == (0, True)


def test_all_stop_early_by_a_common_metric_and_none_by_its_own(runs: dict[str, Any]) -> None:
    assert runs["stopped by a common metric"] == [{"steps": 4, "loaded": True}] * 4, runs["printed"]
    for sentence in runs["stopped by their own metrics"]:
        assert sentence.startswith("PeerError: "), runs["printed"]
        assert "every node must call step() equally often" in sentence


def test_the_wrong_ways_are_refused(runs: dict[str, Any]) -> None:
    for r in runs["wrong"]:
        assert "wrapped in DistributedDataParallel over the ranks [0, 1, 2, 3]" in r["Trainer"], runs["printed"]
        assert "GossipTrainer" in r["Trainer"]
        assert "needs an optimizer of gossamer.optim" in r["other optimizer"]
    for r in runs["resumed"]:
        assert all("give save_strategy='steps'" in sentence for sentence in r["said"])
        assert len(r["said"]) == 2
