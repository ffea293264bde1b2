"""The examples run as their docstrings say, with few steps: alone and on several real nodes."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(name: str, *arguments: str, nodes: int | None = None) -> str:
    """What an example prints; `nodes=None` starts it without torchrun."""
    launcher = [] if nodes is None else ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(nodes)]
    command = [sys.executable, *launcher, str(EXAMPLES / name), *arguments]
    # Few threads, and loopback only: the tests run side by side.
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_every_example_begins_with_its_launch_commands() -> None:
    for name in ("train_image.py", "tiny_gpt.py", "own_method.py"):
        text = (EXAMPLES / name).read_text()
        assert f"\n    python examples/{name} " in text
        assert re.search(rf"\n    torchrun --standalone --nproc-per-node \d examples/{name} ", text)


@pytest.mark.parametrize("nodes", [None, 4])
def test_train_image_learns(nodes: int | None) -> None:
    printed = run("train_image.py", "--steps", "48", nodes=nodes)
    rows = re.findall(r"step +(\d+)  averaged model: test loss ([\d.]+), test accuracy ([\d.]+)%", printed)
    steps, losses, accuracies = zip(*((int(s), float(loss), float(a)) for s, loss, a in rows), strict=True)
    assert steps == (6, 12, 18, 24, 30, 36, 42, 48)
    assert min(losses[-3:]) < 0.8 * losses[0]
    assert max(accuracies[-3:]) > 50


@pytest.mark.parametrize("nodes", [None, 2])
def test_tiny_gpt_learns_every_text(nodes: int | None) -> None:
    printed = run("tiny_gpt.py", "--steps", "12", "--batch-size", "8", nodes=nodes)
    rows = re.findall(r"^  (\w+) +before ([\d.]+)  after ([\d.]+)$", printed, re.MULTILINE)
    assert [name for name, _, _ in rows] == ["asyncio", "email"][: nodes or 1]
    assert all(float(after) < float(before) - 0.5 for _, before, after in rows)
    assert len(printed.split("    def ", 1)[1].rstrip("\n")) >= 150


def test_own_method_is_checked_and_simulated() -> None:
    printed = run("own_method.py", "--rounds", "30")
    assert "exact_on_schedules                holds" in printed
    assert "fails" not in printed
    assert float(re.search(r"simulated: 8 nodes, mean test accuracy ([\d.]+)% after 30 rounds", printed)[1]) > 50
    assert "real:" not in printed


def test_own_method_follows_the_simulator_on_real_nodes() -> None:
    printed = run("own_method.py", "--rounds", "10", nodes=2)
    assert float(re.search(r"real: 2 nodes, parameters differ .* by (\S+) of the largest", printed)[1]) < 1e-5
