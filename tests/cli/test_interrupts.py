"""Ctrl-C and SIGTERM in the middle of a round or an evaluation of a large model are obeyed within two seconds."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gossamer._common import checkpoint_file, signals
from gossamer.experiments.store import StoredRun

PROMISE = 2.0
# A round takes many seconds, and so does an evaluation with many test samples.
NOISE = """
import torch
import gossamer as gs

@gs.data.register("noise")
def noise():
    numbers = torch.Generator().manual_seed(0)
    inputs, targets = torch.rand(1600 + TESTS, 3, 32, 32, generator=numbers), torch.arange(1600 + TESTS) % 10
    return gs.data.Dataset.from_tensors(inputs[:1600], targets[:1600], test=(inputs[1600:], targets[1600:]))
"""
SCRIPT = """
from pathlib import Path
import gossamer as gs
import noise

nodes = gs.data.load("noise").split(gs.partition.iid(nodes=8), holdout=0)
Path("begun").touch()
gs.simulate(
    gs.models.VGG11, nodes, "momentum-tracking", "ring", lr=0.001, batch_size=200, rounds=20, evaluations=1,
    checkpoint="run/checkpoints", checkpoint_every=1.0, callbacks=[lambda row: Path("evaluated").touch()],
)
"""
COMMAND = (
    "run --load noise.py --dataset noise --model vgg-11 --nodes 8 --partition iid --batch-size 180 --rounds 20 "
    "--evaluations 1 --lr 0.001 --out run"
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "SIGTERM"])
@pytest.mark.parametrize("moment", ["evaluation", "round", "second round"])
@pytest.mark.parametrize("program", ["gossamer run", "simulate"])
def test_eight_nodes_with_vgg_11(tmp_path: Path, program: str, moment: str, number: signal.Signals) -> None:
    (tmp_path / "noise.py").write_text(f"TESTS = {4000 if moment == 'evaluation' else 8}\n{NOISE}", encoding="utf-8")
    (tmp_path / "script.py").write_text(SCRIPT, encoding="utf-8")
    command = ["-m", "gossamer", *COMMAND.split()] if program == "gossamer run" else ["script.py"]
    begun = [tmp_path / "run" / "run.json", tmp_path / "begun"]
    evaluated = [tmp_path / "run" / "metrics.jsonl", tmp_path / "evaluated"]
    with (
        (tmp_path / "output").open("w") as output,
        subprocess.Popen([sys.executable, *command], cwd=tmp_path, stdout=output, stderr=output) as running,
    ):
        try:
            while not any(path.exists() for path in (begun if moment == "evaluation" else evaluated)):
                assert running.poll() is None, (tmp_path / "output").read_text()
                time.sleep(0.05)
            while moment == "second round" and not checkpoint_file.rounds_in(tmp_path / "run" / "checkpoints"):
                time.sleep(0.05)
            time.sleep(3.0)
            running.send_signal(number)
            began = time.monotonic()
            running.wait(60)
            seconds = time.monotonic() - began
        finally:
            running.kill()
    print(f"interrupts | {program} | {moment} | {number.name} | {seconds:.1f} s | {running.returncode}")
    # Other work that keeps the cores busy does not delay the clock, only what is left to compute and to free after it.
    clock, crowd = signals.PATIENCE + signals._GRACE, max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
    assert seconds < clock + (PROMISE - clock) * crowd
    assert running.returncode in (128 + number, -number)
    if program == "gossamer run":
        assert StoredRun(tmp_path / "run").status == "unfinished"
