"""Hosts on one switch, each a network namespace, in a world that ends with the command that made it."""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

WORLD = ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]


def hosts(network: str, *names: str) -> str:
    """Shell lines that make the hosts, with the addresses `network`.1, `network`.2, ...; their ports are port-NAME."""
    return f"""
mkdir -p /run/netns
mount -t tmpfs netns /run/netns
ip link add switch type bridge
ip link set switch up
k=1
for host in {" ".join(names)}; do
  ip netns add $host
  ip link add port-$host type veth peer name eth0 netns $host
  ip link set port-$host master switch up
  ip -n $host address add {network}.$k/24 dev eth0
  ip -n $host link set lo up
  ip -n $host link set eth0 up
  k=$((k + 1))
done
"""


def run_sites(script: str, place: Path, **environment: str) -> None:
    """Run a shell script in such a world, with Gossamer at hand; what it and its sites print is in `place`/*.out."""
    settings = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(Path(__file__).parents[1]),
        "PYTHON": sys.executable,
        "TORCH_CPP_LOG_LEVEL": "ERROR",
    }
    with (place / "world.out").open("w", encoding="utf-8") as output:
        command, all_settings = [*WORLD, "bash", "-c", script], {**os.environ, **settings, **environment}
        done = subprocess.run(
            command, cwd=place, env=all_settings, stdout=output, stderr=output, timeout=300, check=False
        )
    assert done.returncode == 0, {file.name: file.read_text(encoding="utf-8") for file in place.glob("*.out")}


def why_not(what: str, tools: Sequence[str], probe: str, lacking: str) -> str:
    """Why `what` cannot be made here, where tools are missing or the shell line `probe` fails; empty if it can."""
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        return f"{what} need root on Linux"
    missing = [tool for tool in tools if shutil.which(tool) is None]
    if missing:
        return f"{what} need {', '.join(missing)}"
    tried = subprocess.run([*WORLD, "sh", "-c", probe], capture_output=True, check=False)
    return f"this machine lets nobody make {lacking}" if tried.returncode else ""
