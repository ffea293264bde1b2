"""Sites by name, and sites that reach only their neighbours: what docs/multi_host.md says."""

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from gossamer.links.link_plan import read_plan
from gossamer.links.site_files import write_site_files
from tests.namespaces import WORLD, hosts, why_not
from tests.optim.nodes import run_script

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "multi_host.md").read_text(encoding="utf-8")
SITES = ("berlin", "lima", "tokyo")

# Berlin and Tokyo hang on the same switch as Lima, but may not talk to each other. Lima keeps the meeting point.
CHAIN = f"""
set -eu
{hosts("10.0.0", *SITES)}
bridge link set dev port-berlin isolated on
bridge link set dev port-tokyo isolated on
rank=0
for site in lima berlin tokyo; do
  SITE=$site RANK=$rank ip netns exec $site "$PYTHON" node.py >$site.out 2>$site.err &
  rank=$((rank + 1))
done
wait
"""

NODE = """
import json, os
from datetime import timedelta
import torch, torch.distributed as dist
import gossamer as gs

torch.set_num_threads(1)
dist.init_process_group("gloo", timeout=timedelta(seconds=60))
graph = gs.topology.from_edges([("berlin", "lima"), ("lima", "tokyo")])
torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
optimizer = gs.optim.MomentumTracking(
    model.parameters(), lr=0.05, topology=graph, node=os.environ["SITE"], init="zero", timeout=60
)
inputs = torch.randn(16, 4) + optimizer.node

def step(rounds):
    for _ in range(rounds):
        optimizer.zero_grad()
        (model(inputs) - optimizer.node).square().mean().backward()
        optimizer.step()
    return model.weight.tolist()

own = step(10)
for group in optimizer.param_groups:
    group["lr"] = 0.0
common = step(40)
optimizer.close()
print(json.dumps({"own": own, "common": common, "waited": sorted(optimizer.stats()["wait_seconds"])}))
dist.destroy_process_group()
"""

CONNECT = """
from datetime import timedelta
import torch.distributed as dist

dist.init_process_group("gloo", timeout=timedelta(seconds=3))
print("connected")
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def block(kind: str, start: str) -> str:
    """The block of the page that starts with a comment."""
    return next(b for b in re.findall(rf"```{kind}\n(.*?)```", PAGE, re.DOTALL) if b.startswith(start))


@pytest.mark.timeout(400)
def test_the_page_runs_with_sites_by_name(tmp_path: Path) -> None:
    (tmp_path / "sites.toml").write_text(block("toml", "# sites.toml"), encoding="utf-8")
    write_site_files(read_plan(tmp_path / "sites.toml"), tmp_path / "links")
    (tmp_path / "links" / "lima" / "graph.txt").rename(tmp_path / "graph.txt")
    (tmp_path / "train.py").write_text(block("python", "# train.py"), encoding="utf-8")
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    shared = {**address, "WORLD_SIZE": "3", "GLOO_SOCKET_IFNAME": "lo"}
    sites = list(reversed(SITES))  # the rank of a site does not matter
    environments = [{**shared, "GOSSAMER_NODE": site, "RANK": str(rank)} for rank, site in enumerate(sites)]
    outcomes = run_script(tmp_path / "train.py", environments)
    assert [o.code for o in outcomes] == [0, 0, 0], outcomes
    said = {site: outcome.value for site, outcome in zip(sites, outcomes, strict=True)}
    assert "{'lima':" in said["berlin"]
    assert "'tokyo'" not in said["berlin"]
    assert "'berlin':" in said["lima"]
    assert "'tokyo':" in said["lima"]
    assert "{'lima':" in said["tokyo"]


def chain(directory: Path, program: str, **environment: str) -> None:
    """Run the program at the three sites; each leaves SITE.out and SITE.err."""
    directory.mkdir()
    (directory / "node.py").write_text(program, encoding="utf-8")
    address = {"MASTER_ADDR": "10.0.0.2", "MASTER_PORT": "29500", "WORLD_SIZE": "3", "GLOO_SOCKET_IFNAME": "eth0"}
    shared = {**os.environ, "PYTHON": sys.executable, **address, "TORCH_CPP_LOG_LEVEL": "ERROR", **environment}
    subprocess.run([*WORLD, "bash", "-c", CHAIN], cwd=directory, env=shared, check=True, timeout=200)


PROBE = (
    "ip link add left type veth peer name right && ip link add switch type bridge && "
    "ip link set left master switch && bridge link set dev left isolated on"
)
TOOLS = ("ip", "bridge", "unshare", "bash")
WHY_NOT = why_not("network namespaces", TOOLS, PROBE, "network namespaces, bridges and veth pairs")


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)
def test_a_chain_whose_ends_cannot_reach_each_other_needs_lazy_connections(tmp_path: Path) -> None:
    lazily, eagerly = tmp_path / "lazily", tmp_path / "eagerly"
    chain(lazily, NODE, TORCH_GLOO_LAZY_INIT="1")
    errors = {site: (lazily / f"{site}.err").read_text(encoding="utf-8") for site in SITES}
    outputs = {site: (lazily / f"{site}.out").read_text(encoding="utf-8") for site in SITES}
    assert all(outputs.values()), errors
    told = {site: json.loads(text) for site, text in outputs.items()}
    assert [told[site]["waited"] for site in SITES] == [["lima"], ["berlin", "tokyo"], ["lima"]]
    for k in range(4):
        own, common = ([told[site][name][0][k] for site in SITES] for name in ("own", "common"))
        assert max(own) - min(own) > 1e-3  # while they train the sites differ,
        assert max(common) - min(common) < 1e-5  # and steps of size 0 bring them together
    chain(eagerly, CONNECT)
    for site in ("berlin", "tokyo"):
        assert not (eagerly / f"{site}.out").read_text(encoding="utf-8")
        assert "connectFullMesh failed" in (eagerly / f"{site}.err").read_text(encoding="utf-8")
