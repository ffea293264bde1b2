"""Three sites over real tunnels: one per edge, where two sites have none to each other, and one per pair (--mesh)."""

import json
from pathlib import Path

import pytest

from gossamer.cli import main
from tests.links.test_tunnels import BRING_UP, WHY_NOT
from tests.namespaces import hosts, run_sites
from tests.network.test_multi_host import free_port
from tests.optim.nodes import run_script

SITES = ("berlin", "lima", "tokyo")

NETWORK = (
    BRING_UP
    + """
  wg show gossamer peers | wc -l >$1.peers
  if [ $1 = berlin ]; then
    program capture gossamer inside.bytes &
    until_there_is inside.bytes.ready
  fi
  touch $1.up
  for other in berlin lima tokyo; do until_there_is $other.up; done
  links/$1/launch.sh train.py
}
export -f site
"""
    + hosts("192.0.2", *SITES)
    + """
program capture port-berlin outside.bytes &
until_there_is outside.bytes.ready
for host in berlin lima tokyo; do
  { ip netns exec $host bash -euc "site $host" >$host.out 2>&1 || touch failed; } &
  sites="${sites:-} $!"
done
wait $sites
[ ! -e failed ]
sleep 0.3
"""
)

TRAIN = """
import json, os
from pathlib import Path

import torch
import torch.distributed as dist

import gossamer as gs

torch.set_num_threads(1)
dist.init_process_group("gloo")
graph = gs.topology.from_file(GRAPH) if GRAPH else gs.topology.get("one-peer-exponential", 3)
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
optimizer = gs.optim.MomentumTracking(
    model.parameters(), lr=0.05, momentum=0.9, topology=graph, timeout=60, init="zero"  # else the first step needs all
)
inputs = torch.randn(64, 8, generator=torch.Generator().manual_seed(optimizer.node)) + optimizer.node
for _ in range(12):
    optimizer.zero_grad()
    (model(inputs) - inputs.sum(1, keepdim=True).sin()).square().mean().backward()
    optimizer.step()
optimizer.close()
waited = sorted(map(str, optimizer.stats()["wait_seconds"]))
dist.destroy_process_group()
numbers = [parameter.detach().numpy().tobytes().hex() for parameter in model.parameters()]
Path(f"{os.environ['RANK']}.json").write_text(json.dumps({"numbers": numbers, "waited": waited}))
"""


# Where sites come and go there is no launcher: the meeting point runs the coordinator, inside the tunnels.
COME_AND_GO = """
  [ $1 != berlin ] || "$PYTHON" -m gossamer coordinator --host 10.77.0.1 >coordinator.out 2>&1 &
  "$PYTHON" sites.py $1
"""
ONE_LEAVES = """
import json, os, sys, time
from pathlib import Path

import torch

import gossamer as gs

name = sys.argv[1]
torch.set_num_threads(1)
torch.manual_seed(0)
model = torch.nn.Linear(8, 1)
sites = gs.Sites("10.77.0.1:29510", name=name, at_least=2, patience=10)
optimizer = gs.optim.MomentumTracking(model.parameters(), lr=1e-4, topology="ring", sites=sites)
inputs = torch.randn(64, 8, generator=torch.Generator().manual_seed(len(name))) + len(name)
while optimizer.round < 300:
    optimizer.zero_grad()
    (model(inputs) - inputs.sum(1, keepdim=True)).square().mean().backward()
    optimizer.step()
    there = optimizer.stats()["sites"]
    if name == "lima" and len(there) == 3 and optimizer.round >= 100:
        Path("lima.json").write_text(json.dumps([optimizer.round, there]))
        os._exit(0)
    time.sleep(0.01)
optimizer.close()
Path(f"{name}.json").write_text(json.dumps([optimizer.round, there]))
"""


def plan(mesh: bool) -> str:
    """Berlin in the middle; in a mesh the training chooses its neighbours."""
    neighbours = "" if mesh else 'neighbours = ["berlin"]'
    tables = [
        f'[[site]]\nname = "{site}"\naddress = "192.0.2.{k}"\n{neighbours if k > 1 else ""}\n'
        for k, site in enumerate(SITES, start=1)
    ]
    return "\n".join(tables)


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)
@pytest.mark.parametrize("mesh", [False, True], ids=["a tunnel per edge", "a tunnel per pair"])
def test_three_sites_train_to_the_same_bits(tmp_path: Path, mesh: bool) -> None:
    tunnels, loopback = tmp_path / "tunnels", tmp_path / "loopback"
    for place in (tunnels, loopback):
        place.mkdir()
        graph = "None" if mesh else repr(str(tunnels / "links" / "lima" / "graph.txt"))
        (place / "train.py").write_text(f"GRAPH = {graph}\n{TRAIN}", encoding="utf-8")
    (tmp_path / "sites.toml").write_text(plan(mesh), encoding="utf-8")
    with pytest.raises(SystemExit, match="0"):
        main(["links", str(tmp_path / "sites.toml"), "--out", str(tunnels / "links"), *(["--mesh"] if mesh else [])])
    run_sites(NETWORK, tunnels)
    peers = [(tunnels / f"{site}.peers").read_text(encoding="utf-8").strip() for site in SITES]
    assert peers == (["2", "2", "2"] if mesh else ["2", "1", "1"])

    shared = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "WORLD_SIZE": "3",
        "GLOO_SOCKET_IFNAME": "lo",
    }
    environments = [{**shared, "RANK": str(k), "GOSSAMER_NODE": "" if mesh else site} for k, site in enumerate(SITES)]
    outcomes = run_script(loopback / "train.py", environments)
    assert [outcome.code for outcome in outcomes] == [0, 0, 0], outcomes
    told = [json.loads((tunnels / f"{k}.json").read_text(encoding="utf-8")) for k in range(3)]
    assert told == [json.loads((loopback / f"{k}.json").read_text(encoding="utf-8")) for k in range(3)]
    assert len({site["numbers"][0] for site in told}) == 3
    assert [site["waited"] for site in told] == (
        [["1", "2"], ["0", "2"], ["0", "1"]] if mesh else [["lima", "tokyo"], ["berlin"], ["berlin"]]
    )
    assert_nothing_is_seen_outside(tunnels)


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)
def test_sites_that_come_and_go_stay_inside_the_tunnels(tmp_path: Path) -> None:
    pytest.importorskip("torchft")
    (tmp_path / "sites.py").write_text(ONE_LEAVES, encoding="utf-8")
    (tmp_path / "sites.toml").write_text(plan(mesh=True), encoding="utf-8")
    with pytest.raises(SystemExit, match="0"):
        main(["links", str(tmp_path / "sites.toml"), "--out", str(tmp_path / "links"), "--mesh"])
    run_sites(NETWORK.replace("  links/$1/launch.sh train.py\n", COME_AND_GO), tmp_path)
    told = {site: json.loads((tmp_path / f"{site}.json").read_text(encoding="utf-8")) for site in SITES}
    assert told["berlin"] == told["tokyo"] == [300, ["berlin", "tokyo"]]
    assert 100 <= told["lima"][0] < 300
    assert_nothing_is_seen_outside(tmp_path)


def assert_nothing_is_seen_outside(place: Path) -> None:
    inside, outside = ((place / f"{where}.bytes").read_bytes() for where in ("inside", "outside"))
    mark = b"remassog"  # what every message begins with
    assert mark in inside
    assert mark not in outside
    assert len(outside) > len(inside)
