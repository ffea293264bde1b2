"""The examples run as their docstrings say, with few steps: alone and on several real nodes."""

import re
import runpy
import shlex
import socket
import sys
import time
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from gossamer.cli import main
from tests.processes import run_nodes, start

EXAMPLES = Path(__file__).parents[2] / "examples"
PARAMETERS = 366_560  # of tiny_gpt.py


def run(out: Path, command: str, nodes: int | None = None) -> str:
    """What an example prints, alone or with what torchrun gives each of several nodes."""
    if nodes:
        return run_nodes(nodes, out, _main, command)[0]
    process = start(out / "alone.out", _main, command)
    process.join(100)
    process.kill()
    printed = (out / "alone.out").read_text(encoding="utf-8")
    assert process.exitcode == 0, printed
    return printed


def _main(command: str) -> None:
    sys.argv = shlex.split(command)
    runpy.run_path(str(EXAMPLES / sys.argv[0]), run_name="__main__")


def test_every_example_begins_with_its_launch_commands() -> None:
    for name in ("train_image.py", "tiny_gpt.py", "own_method.py", "private_sites.py"):
        text = (EXAMPLES / name).read_text()
        assert f"\n    python examples/{name} " in text
        assert re.search(rf"\n    torchrun --standalone --nproc-per-node \d examples/{name} ", text)


def learns(printed: str) -> bool:
    rows = re.findall(r"step +(\d+)  averaged model: test loss ([\d.]+), test accuracy ([\d.]+)%", printed)
    steps, losses, accuracies = zip(*((int(s), float(loss), float(a)) for s, loss, a in rows), strict=True)
    assert steps == (6, 12, 18, 24, 30, 36, 42, 48)
    return min(losses[-3:]) < 0.8 * losses[0] and max(accuracies[-3:]) > 50


def test_the_loop_of_the_readme_is_complete(tmp_path: Path) -> None:
    readme = (EXAMPLES.parent / "README.md").read_text(encoding="utf-8")
    script = tmp_path / "train.py"
    script.write_text(re.search(r"```python\n(# train\.py\n.*?)```", readme, re.DOTALL)[1], encoding="utf-8")
    printed = run_nodes(4, tmp_path, _main, str(script))
    losses = [float(re.fullmatch(r"site \d: loss ([\d.]+)\n", p)[1]) for p in printed]
    assert max(losses) < 1, "it begins above 20"


@pytest.mark.parametrize("nodes", [None, 4])
def test_train_image_learns(nodes: int | None, tmp_path: Path) -> None:
    assert learns(run(tmp_path, "train_image.py --steps 48", nodes))


@pytest.mark.parametrize(("nodes", "traffic"), [(None, ""), (2, ""), (2, "--every 3 --compress quantize:bits=4")])
def test_tiny_gpt_learns_every_text(nodes: int | None, traffic: str, tmp_path: Path) -> None:
    printed = run(tmp_path, f"tiny_gpt.py --steps 12 --batch-size 8 {traffic}", nodes)
    sent = float(re.search(r"after ([\d.]+) MB sent by node 0", printed)[1])
    vectors = 0 if nodes is None else 1 + 12 * 2 * (0.129 / 3 if traffic else 1)  # 1: the all-reduce of the first step
    assert sent == pytest.approx(4e-6 * PARAMETERS * vectors, rel=0.02)
    rows = re.findall(r"^  (\w+) +before ([\d.]+)  after ([\d.]+)$", printed, re.MULTILINE)
    assert [name for name, _, _ in rows] == ["asyncio", "email"][: nodes or 1]
    assert all(float(after) < float(before) - 0.5 for _, before, after in rows)
    assert len(printed.split("    def ", 1)[1].rstrip("\n")) >= 150


def test_own_method_is_checked_and_simulated(tmp_path: Path) -> None:
    printed = run(tmp_path, "own_method.py --rounds 30")
    assert "exact_on_schedules                holds" in printed
    assert "fails" not in printed
    assert float(re.search(r"simulated: 8 nodes, mean test accuracy ([\d.]+)% after 30 rounds", printed)[1]) > 50
    assert "real:" not in printed


def test_own_method_follows_the_simulator_on_real_nodes(tmp_path: Path) -> None:
    printed = run(tmp_path, "own_method.py --rounds 10", 2)
    assert float(re.search(r"real: 2 nodes, parameters differ .* by (\S+) of the largest", printed)[1]) < 1e-5


def test_hospitals_go_on_without_one_and_with_it_again(tmp_path: Path) -> None:
    pytest.importorskip("torchft", reason="pip install -e '.[elastic]'")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    options = f"--coordinator 127.0.0.1:{port} --at-least 2 --rounds 400 --pause 0.01"
    processes = [start(tmp_path / "coordinator.out", main, ["coordinator", "--port", str(port)])]

    def begin(name: str) -> BaseProcess:
        command = f"hospital.py {name} {options} --checkpoints {tmp_path / 'checkpoints'}"
        processes.append(start(tmp_path / f"{name}.out", _main, command))
        return processes[-1]

    def wait_for(words: str) -> None:
        deadline = time.monotonic() + 60
        while words not in (said := (tmp_path / "oslo.out").read_text(encoding="utf-8")):
            assert time.monotonic() < deadline, said
            time.sleep(0.05)

    try:
        (tmp_path / "oslo.out").touch()
        hospitals = [begin(name) for name in ("oslo", "bergen", "tromso")]
        wait_for("round   100  3 hospitals")
        hospitals.pop().kill()
        wait_for("tromso left before round")
        hospitals.append(begin("tromso"))
        for hospital in hospitals:
            hospital.join(60)
        assert [hospital.exitcode for hospital in hospitals] == [0, 0, 0]
    finally:
        for process in processes:
            process.kill()
    for name in ("oslo", "bergen", "tromso"):
        last = (tmp_path / f"{name}.out").read_text(encoding="utf-8").splitlines()[-1]
        assert float(re.search(r"round   400  3 hospitals  all ten digits: ([\d.]+)%", last)[1]) > 90


@pytest.mark.slow
def test_private_sites_learn_within_their_epsilon(tmp_path: Path) -> None:
    pytest.importorskip("opacus", reason="pip install -e '.[privacy]'")
    for site, printed in enumerate(run_nodes(4, tmp_path, _main, "private_sites.py --epsilon 8")):
        told = re.search(r"site (\d): epsilon ([\d.]+) at delta 1e-05, .* test accuracy ([\d.]+)%", printed)
        assert int(told[1]) == site
        assert 7.9 < float(told[2]) <= 8
        assert float(told[3]) > 75
