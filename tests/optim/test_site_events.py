"""A hundred random events in one run: no survivor ends, and all sites finish the same rounds with the same model."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.namespaces import WORLD, hosts, why_not
from tests.optim.site_events import BRIDGE, LONG, ROUNDS, run, table
from tests.optim.site_runs import NAMES, Director

pytest.importorskip("torchft")

EVENTS, SEED = 100, 0
WHY_NOT = why_not("network namespaces", ["ip", "unshare"], "ip link add probe type bridge", "network namespaces")
NETWORK = f"""
set -eu
{hosts(BRIDGE.rpartition(".")[0], *NAMES)}
ip link set lo up
ip address add {BRIDGE}/24 dev switch
exec "$@"
"""


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> float:
    """The mean accuracy where nothing happens."""
    plan = {**LONG, "pace": 0.0, "at_least": 8, "patience": 20.0}
    with Director(tmp_path_factory.mktemp("quiet"), NAMES, **plan) as director:
        return mean_accuracy(director.finish(600))


def between_hosts(place: Path, *arguments: str) -> None:
    """Run `site_events` where every site has a network of its own."""
    command = [sys.executable, "-m", "tests.optim.site_events", str(place), *arguments]
    subprocess.run([*WORLD, "sh", "-c", NETWORK, "sh", *command], check=True, timeout=1700)


def mean_accuracy(end: dict[str, Any]) -> float:
    return sum(told["accuracy"] for told in end.values()) / len(end)


def check(measured: dict[str, Any], undisturbed: float) -> None:
    print(table(measured["times"]), f"{mean_accuracy(measured['end']):.4f}, undisturbed {undisturbed:.4f}", sep="\n")
    assert len(measured["times"]) >= EVENTS
    assert measured["last event"] <= 0.8 * ROUNDS
    end = measured["end"]
    assert {told["round"] for told in end.values()} == {ROUNDS}
    models = torch.tensor([told["x"] for told in end.values()])
    assert models.isfinite().all()
    assert (models - models.mean(0)).norm(dim=1).max() < 0.01 * models.mean(0).norm()
    assert abs(mean_accuracy(end) - undisturbed) <= 0.01


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_hundred_events_on_loopback(tmp_path: Path, undisturbed: float) -> None:
    check(run(tmp_path, EVENTS, SEED, hosts=False), undisturbed)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)
def test_a_hundred_events_between_hosts(tmp_path: Path, undisturbed: float) -> None:
    between_hosts(tmp_path, str(EVENTS), str(SEED), "hosts")
    check(json.loads((tmp_path / "events.json").read_text()), undisturbed)


@pytest.mark.slow
@pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)
def test_of_a_split_network_only_the_part_with_the_coordinator_goes_on(tmp_path: Path) -> None:
    between_hosts(tmp_path, "split")
    told = json.loads((tmp_path / "split.json").read_text())
    connected, cut_off = NAMES[:3], NAMES[3:5]
    assert all(told["later"][name] >= told["during"][name] + 10 for name in connected)
    for name in cut_off:
        assert told["later"][name] == told["during"][name] < told["during"][connected[0]]
        assert "the coordinator at 10.9.0.254" in told["logs"][name]
        assert "waiting for it" in told["logs"][name]
    assert {end["round"] for end in told["end"].values()} == {1500}
    assert "it was silent for 2 s" in told["logs"][connected[0]]
    assert "dart and ebro joined before round" in told["logs"][connected[0]]
    models = torch.tensor([end["x"] for end in told["end"].values()])
    assert (models - models.mean(0)).norm(dim=1).max() < 0.01 * models.mean(0).norm()
