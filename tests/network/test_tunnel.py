"""The example of a tunnel: it trains, and what passes outside holds no model."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

RUN = Path(__file__).parents[2] / "examples" / "tunnel" / "run.sh"
WORLD = ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]


def able() -> str:
    """Why a tunnel cannot be made here; empty if it can."""
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        return "a WireGuard tunnel needs root on Linux"
    lacking = [tool for tool in ("ip", "unshare", "wg", "bash") if shutil.which(tool) is None]
    if lacking:
        return f"a WireGuard tunnel needs {', '.join(lacking)}"
    tried = subprocess.run([*WORLD, "ip", "link", "add", "probe", "type", "veth"], capture_output=True, check=False)
    if tried.returncode:
        return "this machine lets nobody make network namespaces and veth pairs"
    command = [*WORLD, "ip", "link", "add", "probe", "type", "wireguard"]
    kernel = subprocess.run(command, capture_output=True, check=False)
    if kernel.returncode and (shutil.which("wireguard-go") is None or not Path("/dev/net/tun").exists()):
        return "this kernel has no WireGuard, and there is no wireguard-go with /dev/net/tun"
    return ""


WHY_NOT = able()


@pytest.mark.timeout(240)
@pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)
def test_two_sites_train_through_the_tunnel_and_nothing_of_the_models_passes_outside(tmp_path: Path) -> None:
    before = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    environment = {**os.environ, "PYTHON": sys.executable}
    done = subprocess.run([RUN, tmp_path], env=environment, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    for site in ("berlin", "lima"):
        assert f"{site}: loss " in done.stdout
    models = [torch.load(tmp_path / f"{site}.pt", weights_only=True) for site in ("berlin", "lima")]
    row = [model["0.weight"][k].numpy().tobytes() for model in models for k in range(32)]
    inside, outside = ((tmp_path / f"{where}.bytes").read_bytes() for where in ("inside", "outside"))
    mark = b"remassog"  # what every message begins with
    assert mark in inside
    assert sum(r in inside for r in row) > 32
    assert len(outside) > len(inside)
    assert mark not in outside
    assert not any(r in outside for r in row)
    after = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    assert before == after


def test_it_says_what_it_needs(tmp_path: Path) -> None:
    bash, dirname = shutil.which("bash"), shutil.which("dirname")
    if bash is None or dirname is None:
        pytest.skip("the example is a bash script")
    for tool in ("dirname", "id"):  # a world without ip, unshare and wg
        (tmp_path / tool).symlink_to(shutil.which(tool))  # type: ignore[arg-type]
    command, environment = [bash, RUN, tmp_path / "out"], {"PATH": str(tmp_path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "needs root and ip, unshare and wg" in done.stderr
    assert not (tmp_path / "out").exists()
