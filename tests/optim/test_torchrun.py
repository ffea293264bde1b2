"""The same script under torchrun: nodes are killed and restarted, and nothing is lost."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.optim import restarts
from tests.optim.nodes import values
from tests.optim.restart_script import SITES

ROOT = Path(__file__).parents[2]


@contextmanager
def torchrun(n: int, directory: Path, rounds: int, kills: list[Any]) -> "Iterator[subprocess.Popen[str]]":
    command = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={n}", f"--max-restarts={len(kills)}"]
    script = ["--module", "tests.optim.restart_script", str(directory), str(rounds), json.dumps(kills)]
    # Else torchrun keeps one store over all restarts, and init_process_group connects to those who are dead.
    environment = {**os.environ, "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    process = subprocess.Popen([sys.executable, *command, *script], cwd=ROOT, env=environment, **pipes)
    try:
        yield process
    finally:
        process.terminate()
        process.communicate()


@pytest.mark.slow
@pytest.mark.timeout(700)
def test_any_node_may_be_killed_at_any_moment(tmp_path: Path) -> None:
    kills = [
        ("rome", 0, "start"), ("bonn", 0, "step"), ("oslo", 2, "save"), ("rome", 5, "any"), ("bonn", 11, "save"),
        ("oslo", 12, "step"), ("rome", 20, "save"), ("oslo", 23, "any"), ("bonn", 22, "any"),
    ]  # fmt: skip
    expected = values(3, restarts.train, 24, SITES, str(tmp_path / "whole"))
    with torchrun(3, tmp_path, 24, kills) as process:
        output, _ = process.communicate(timeout=60 * (1 + len(kills)))
    assert process.returncode == 0, output
    assert output.count("exitcode: -9") == len(kills), output
    for name, (wanted,) in zip(SITES, expected, strict=True):
        assert torch.equal(torch.load(tmp_path / f"result-{name}.pt", weights_only=True), wanted), name
    assert not list(tmp_path.glob("node-*/.*")), "what the killed ones had begun is cleared away"


@pytest.mark.slow  # the same signal without torchrun: test_restarts.py
@pytest.mark.timeout(400)
def test_sigterm_to_torchrun_saves_the_same_round_everywhere(tmp_path: Path) -> None:
    with torchrun(2, tmp_path, 2000, []) as process:
        deadline = time.monotonic() + 100
        while not list(tmp_path.glob("node-oslo/round-0000000[1-9]?.ckpt")) and process.poll() is None:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=60)
    newest = {max(p.name for p in (tmp_path / f"node-{name}").glob("*.ckpt")) for name in SITES[:2]}
    assert len(newest) == 1, output
    reached = int(newest.pop().split("-")[1].split(".")[0])
    assert 10 <= reached < 2000
    for resumed, whole in values(2, restarts.train, reached + 5, SITES[:2], str(tmp_path), str(tmp_path / "whole")):
        assert torch.equal(resumed, whole)
