"""A link between two sites is cut: every site ends within timeout + 5 s, and names who is behind the link."""

import shutil
from pathlib import Path

import pytest

from tests.namespaces import hosts, run_sites
from tests.network.test_multi_host import WHY_NOT

SITES = ("lima", "berlin", "tokyo")
TIMEOUT = 4.0
PROMISE = TIMEOUT + 5

# Three hosts on one switch; the first keeps the meeting point. A cut link drops every packet, in both directions.
NETWORK = (
    "set -eu"
    + hosts("10.0.0", *SITES)
    + """
rank=0
for site in lima berlin tokyo; do
  { SITE=$site RANK=$rank ip netns exec $site $LAUNCH node.py >$site.out 2>&1 || true; date +%s.%N >$site.end; } &
  rank=$((rank + 1))
done
for site in lima berlin tokyo; do until [ -e $site.ready ]; do sleep 0.1; [ ! -e $site.end ]; done; done
sleep 0.5
date +%s.%N >cut
ip netns exec berlin nft -f cut.nft
wait
"""
)
TORCHRUN = "-m torch.distributed.run --nnodes 3 --nproc-per-node 1 --master-addr 10.0.0.1 --master-port 29500"
CUT = """
table inet cut {
  chain arriving { type filter hook input priority 0; ip saddr ADDRESS drop; }
  chain leaving { type filter hook output priority 0; ip daddr ADDRESS drop; }
}
"""
NODE = f"""
import os, time
from pathlib import Path
import torch, torch.distributed as dist
import gossamer as gs

torch.set_num_threads(1)
dist.init_process_group("gloo")
site = os.environ["SITE"]
graph = gs.topology.from_edges([("lima", "berlin"), ("berlin", "tokyo"), ("tokyo", "lima")])
model = torch.nn.Linear(4, 1)
optimizer = gs.optim.MomentumTracking(model.parameters(), lr=1e-4, topology=graph, node=site, timeout={TIMEOUT})
inputs = torch.randn(16, 4) + optimizer.node
dist.barrier()  # processes may take longer to start than a peer may be silent
for r in range(100_000):
    optimizer.zero_grad()
    (model(inputs) - optimizer.node).square().mean().backward()
    optimizer.step()
    time.sleep(0.01)
    if r == 10:
        Path(f"{{site}}.ready").touch()
"""


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.skipif(bool(WHY_NOT) or shutil.which("nft") is None, reason=WHY_NOT or "a link is cut by nft")
@pytest.mark.parametrize("launcher", ["", f"{TORCHRUN} --node-rank $rank"], ids=["python", "torchrun"])
@pytest.mark.parametrize("other", ["tokyo", "lima"])
def test_every_site_ends_soon_after_a_link_is_cut(tmp_path: Path, other: str, launcher: str) -> None:
    (tmp_path / "node.py").write_text(NODE, encoding="utf-8")
    address = f"10.0.0.{SITES.index(other) + 1}"
    (tmp_path / "cut.nft").write_text(CUT.replace("ADDRESS", address), encoding="utf-8")
    shared = {"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500", "WORLD_SIZE": "3", "GLOO_SOCKET_IFNAME": "eth0"}
    run_sites(NETWORK.replace("$LAUNCH", f'"$PYTHON" {launcher}'), tmp_path, **shared)
    began = float((tmp_path / "cut").read_text())
    said = {site: (tmp_path / f"{site}.out").read_text(encoding="utf-8") for site in SITES}
    seconds = {site: float((tmp_path / f"{site}.end").read_text()) - began for site in SITES}
    print(f"cut link | berlin and {other} | {', '.join(f'{site} {s:.1f} s' for site, s in seconds.items())}")
    assert max(seconds.values()) < PROMISE, seconds
    assert min(seconds.values()) > TIMEOUT - 1, said
    if other == "tokyo":  # all reach the store, where both ends say that they wait for each other
        link = "Node 1 (berlin) and node 2 (tokyo) wait for each other in round"
        assert all(link in sentence for sentence in said.values()), said
    else:  # berlin is cut off from the store, too: it cannot tell, and the others see that it is silent
        assert "Node 0 (lima) has been silent for 4 s, or waits for another" in said["berlin"]
        assert all("Node 1 (berlin) has been silent for 4 s: it" in said[site] for site in ("lima", "tokyo")), said
