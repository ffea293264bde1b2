"""Two sites train over the tunnels that `gossamer links` writes, with a stranger on the same network."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from gossamer.cli import main
from tests.links.programs import OTHER_SERVICE, ports_of_torch, train
from tests.namespaces import WORLD, hosts, run_sites, why_not
from tests.processes import run_nodes

TOOLS = ("ip", "unshare", "wg", "wg-quick", "nft", "bash", "mount")
SITES = """
[[site]]
name = "berlin"
address = "192.0.2.1"

[[site]]
name = "lima"
address = "192.0.2.2"
neighbours = ["berlin"]
"""

# Each host is a network namespace on one switch. A site does what its operator would do: wg-quick up, ./launch.sh.
BRING_UP = """
set -eu
program() { "$PYTHON" -m tests.links.programs "$@"; }
until_there_is() { until [ -e $1 ]; do [ ! -e failed ]; sleep 0.2; done }
export -f program until_there_is
site() {
  mkdir -p /etc/wireguard /run/wireguard
  mount --bind links/$1 /etc/wireguard
  mount -t tmpfs wireguard /run/wireguard
  wg-quick up gossamer
"""
NETWORK = (
    BRING_UP
    + """
  if [ $1 = berlin ]; then
    program capture gossamer inside.bytes &
    program serve &
    until_there_is inside.bytes.ready
  fi
  touch $1.up
  until_there_is berlin.up
  { links/$1/launch.sh --module tests.links.programs train links/$1/graph.txt || touch failed; } &
  launched=$!
  until_there_is $1.paused
  "$PYTHON" -m gossamer doctor --network --json >$1.seen
  if [ $1 = lima ]; then program knock peer.json "[[\\"10.77.0.1\\", $SERVICE]]"; fi
  mv $1.seen $1.doctor
  until_there_is tried
  nft delete table inet gossamer
  touch $1.unguarded
  wait $launched
}
export -f site
"""
    + hosts("192.0.2", "berlin", "lima", "stranger")
    + """
# The stranger sends packets for the addresses inside the tunnels straight to the hosts.
ip -n stranger route add 10.77.0.1 via 192.0.2.1
ip -n stranger route add 10.77.0.2 via 192.0.2.2
program capture port-berlin outside.bytes &
until_there_is outside.bytes.ready
for site in berlin lima; do
  { ip netns exec $site bash -euc "site $site" >$site.out 2>&1 || touch failed; } &
  sites="${sites:-} $!"
done
until_there_is berlin.doctor
until_there_is lima.doctor
targets=$(program targets)
ip netns exec stranger bash -euc "program knock guarded.json '$targets'"
touch tried
until_there_is berlin.unguarded
until_there_is lima.unguarded
ip netns exec stranger bash -euc "program knock unguarded.json '$targets'"
touch go-on
wait $sites
[ ! -e failed ]
sleep 0.3
"""
)


def able() -> str:
    """Why tunnels cannot be made here; empty if they can."""
    probe = "ip link add left type veth && ip link add switch type bridge && nft add table inet probe"
    made = "network namespaces, bridges, veth pairs and firewall rules"
    if reason := why_not("WireGuard and network namespaces", TOOLS, probe, made):
        return reason
    command = [*WORLD, "ip", "link", "add", "probe", "type", "wireguard"]
    kernel = subprocess.run(command, capture_output=True, check=False)
    if kernel.returncode and (shutil.which("wireguard-go") is None or not Path("/dev/net/tun").exists()):
        return "this kernel has no WireGuard, and there is no wireguard-go with /dev/net/tun"
    return ""


WHY_NOT = able()


@pytest.mark.timeout(240)
@pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)
def test_sites_train_to_the_same_bits_and_strangers_see_and_reach_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tunnels, loopback = tmp_path / "tunnels", tmp_path / "loopback"
    tunnels.mkdir()
    loopback.mkdir()
    (tmp_path / "sites.toml").write_text(SITES, encoding="utf-8")
    with pytest.raises(SystemExit, match="0"):
        main(["links", str(tmp_path / "sites.toml"), "--out", str(tunnels / "links")])
    run_sites(NETWORK, tunnels, SERVICE=str(OTHER_SERVICE))

    monkeypatch.chdir(loopback)
    run_nodes(2, loopback, train, str(tunnels / "links" / "berlin" / "graph.txt"), False)
    models = {site: json.loads((tunnels / f"{site}.json").read_text(encoding="utf-8")) for site in ("berlin", "lima")}
    for site, model in models.items():
        assert model == json.loads((loopback / f"{site}.json").read_text(encoding="utf-8"))
    assert models["berlin"] != models["lima"]

    # The last message holds the models as they are in the end: pieces of 32 bytes, which fit into one packet.
    inside, outside = ((tunnels / f"{where}.bytes").read_bytes() for where in ("inside", "outside"))
    content = [bytes.fromhex(number) for model in models.values() for number in model.values()]
    pieces = [bytes_[k : k + 32] for bytes_ in content for k in range(0, len(bytes_) - 31, 32)]
    mark = b"remassog"  # what every message begins with
    assert mark in inside
    assert sum(piece in inside for piece in pieces) > len(pieces) / 2
    assert len(outside) > len(inside)
    assert mark not in outside
    assert not any(piece in outside for piece in pieces)

    # At the host of the store there are two ports, at the other one.
    ports = [ports_of_torch(str(tunnels / f"{site}.doctor")) for site in ("berlin", "lima")]
    assert 29500 in ports[0]
    assert len(ports[0]) >= 2
    assert len(ports[1]) >= 1
    guarded, unguarded, peer = (
        json.loads((tunnels / f"{which}.json").read_text(encoding="utf-8"))
        for which in ("guarded", "unguarded", "peer")
    )
    others = {f"192.0.2.1:{OTHER_SERVICE}": "connected", f"192.0.2.2:{OTHER_SERVICE}": "Connection refused"}
    assert others.items() <= guarded.items()  # the rules leave other services alone
    assert {outcome for target, outcome in guarded.items() if target not in others} == {"Connection refused"}
    # Without the rules the stranger does reach the store and gloo ...
    assert unguarded["192.0.2.1:29500"] == "connected"
    assert all(f"10.77.0.{k + 1}:{port}" in unguarded for k in (0, 1) for port in ports[k])
    assert all(unguarded[f"10.77.0.{k + 1}:{port}"] == "connected" for k in (0, 1) for port in ports[k])
    # ... and through the tunnel other sites reach the training only.
    assert peer == {f"10.77.0.1:{OTHER_SERVICE}": "Connection refused"}
    for site in ("berlin", "lima"):
        seen = json.loads((tunnels / f"{site}.doctor").read_text(encoding="utf-8"))
        assert (seen["rules"], seen["warnings"]) == (True, [])
