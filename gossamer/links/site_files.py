"""The files of each site: its WireGuard configuration, its firewall rules, its launch command and the graph."""

import base64
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from secrets import token_hex

from gossamer._common.files import cannot_write
from gossamer.errors import InputError
from gossamer.links.link_plan import Plan

INTERFACE = "gossamer"
"""The interface of the tunnels; WireGuard's configuration and the table of firewall rules are called like it."""
STORE_PORTS = "29500-29599"
"""The first is the rendezvous store's; the others are for further runs at the same time."""
SYSTEM_PORTS = "32768-60999"
"""net.ipv4.ip_local_port_range, from which the system picks gloo's ports, as Linux sets it."""

_CONFIGURATION = """\
# {name}, site {number} of {count}. {secrecy}
# Copy it and {interface}.nft to /etc/wireguard, open UDP port {port} to the other sites, then: wg-quick up {interface}

[Interface]
Address = {inside}/{prefix}
ListenPort = {port}
{key}
# Rules first: without them the tunnel is not made.
PreUp = nft -f /etc/wireguard/%i.nft
"""

_PEER = """
[Peer]
# {name}
PublicKey = {key}
AllowedIPs = {inside}/32
{endpoint}PersistentKeepalive = 25
"""

_FIREWALL = """\
# Who may connect to {name}. Loaded by `wg-quick up {interface}`; `nft delete table inet {interface}` removes the rules.
# They only add refusals: what another table of this machine refuses stays refused.
table inet {interface}
delete table inet {interface}
table inet {interface} {{
	# torch's store listens on all interfaces, gloo on a port that the system picks (net.ipv4.ip_local_port_range).
	set training {{
		type inet_service; flags interval
		elements = {{ {store_ports}, {system_ports} }}
	}}
	chain input {{
		type filter hook input priority filter - 10; policy accept;
		iifname "lo" accept
		iifname "{interface}" jump tunnel
		# From outside: neither the addresses of the tunnels nor new connections to these ports.
		ip daddr {subnet} reject
		tcp flags & (fin | syn | rst | ack) == syn tcp dport @training reject with tcp reset
	}}
	chain tunnel {{
		# The other sites reach the training and nothing else of this machine.
		tcp dport @training accept
		tcp flags & (fin | syn | rst | ack) == syn reject with tcp reset
		meta l4proto {{ tcp, icmp }} accept
		drop
	}}
	chain forward {{
		# And nothing behind this machine.
		type filter hook forward priority filter - 10; policy accept;
		iifname "{interface}" drop
		oifname "{interface}" drop
	}}
}}
"""

_LAUNCH = """\
#!/bin/sh
# {name}, site {number} of {count}. Start a training script here: ./launch.sh train.py [its options]
# {meeting} runs the rendezvous store. For a second run at the same time set MASTER_PORT everywhere ({store_ports}).
set -eu
export GLOO_SOCKET_IFNAME={interface}
{variables}exec torchrun --nnodes {count} --nproc-per-node 1 --node-rank {rank} \\
    --master-addr {meeting_address} --master-port "${{MASTER_PORT:-{store_port}}}" "$@"
"""


def write_site_files(plan: Plan, directory: Path) -> None:
    """Write one directory per site, all of them or none. A private key is only in the configuration of its site."""
    make_keys = key_maker()
    keys = [("", site.public_key) if site.public_key else make_keys() for site in plan.sites]
    temporary = directory.parent / f".{directory.name}.{token_hex(8)}.tmp"
    try:
        if directory.is_symlink() or (directory.exists() and (not directory.is_dir() or any(directory.iterdir()))):
            raise InputError(
                f"{directory} exists, and keys in it may be in use, so nothing is overwritten; choose another "
                "directory or move it away."
            )
        directory.parent.mkdir(parents=True, exist_ok=True)
        temporary.mkdir(mode=0o700)
        for k, site in enumerate(plan.sites):
            place = temporary / site.name
            place.mkdir(mode=0o700)
            _write(place / f"{INTERFACE}.conf", _configuration(plan, k, keys), 0o600)
            _write(place / f"{INTERFACE}.nft", _firewall(plan, k), 0o644)
            _write(place / "launch.sh", _launch(plan, k), 0o755)
            if plan.edges:
                _write(place / "graph.txt", _graph(plan), 0o644)
        temporary.replace(directory)
    except OSError as error:
        raise cannot_write(directory, error) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def key_maker() -> Callable[[], tuple[str, str]]:
    """A function that makes a private and a public key of WireGuard."""
    try:
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
    except ImportError:
        program = shutil.which("wg")
        if program is None:
            raise InputError(
                "Keys are made by the package cryptography or the program wg, and neither is installed; run: "
                "pip install 'gossamer[links]', or install wireguard-tools."
            ) from None

        def by_wg() -> tuple[str, str]:
            private = subprocess.run([program, "genkey"], capture_output=True, text=True, check=True).stdout
            public = subprocess.run([program, "pubkey"], input=private, capture_output=True, text=True, check=True)
            return private.strip(), public.stdout.strip()

        return by_wg

    def by_cryptography() -> tuple[str, str]:
        private = X25519PrivateKey.generate()
        halves = private.private_bytes_raw(), private.public_key().public_bytes_raw()
        return base64.b64encode(halves[0]).decode(), base64.b64encode(halves[1]).decode()

    return by_cryptography


def _write(path: Path, text: str, mode: int) -> None:
    path.touch(mode=mode)  # before the content: nobody else may read a key, not even for a moment
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)  # whatever the umask


def _configuration(plan: Plan, k: int, keys: list[tuple[str, str]]) -> str:
    site, (private, _) = plan.sites[k], keys[k]
    text = _CONFIGURATION.format(
        **_common(plan, k),
        secrecy="Secret: it holds the private key of this site." if private else "The private key stays at the site.",
        inside=site.inside,
        prefix=plan.subnet.prefixlen,
        port=site.port,
        key=f"PrivateKey = {private}" if private else "PostUp = wg set %i private-key /etc/wireguard/%i.key",
    )
    for peer in plan.peers(k):
        other = plan.sites[peer]
        endpoint = f"Endpoint = {other.endpoint}\n" if other.endpoint else ""
        text += _PEER.format(name=other.name, key=keys[peer][1], inside=other.inside, endpoint=endpoint)
    return text


def _firewall(plan: Plan, k: int) -> str:
    return _FIREWALL.format(**_common(plan, k), system_ports=SYSTEM_PORTS, subnet=plan.subnet)


def _launch(plan: Plan, k: int) -> str:
    site, meeting = plan.sites[k], plan.sites[0]
    variables = "" if plan.is_mesh else "export TORCH_GLOO_LAZY_INIT=1  # not all sites have a tunnel to each other\n"
    if plan.edges:
        variables += f"export GOSSAMER_NODE={site.name}  # the name of this site in graph.txt\n"
    return _LAUNCH.format(
        **_common(plan, k),
        variables=variables,
        rank=k,
        meeting=meeting.name,
        meeting_address=meeting.inside,
        store_port=STORE_PORTS.partition("-")[0],
    )


def _common(plan: Plan, k: int) -> dict[str, object]:
    return {
        "name": plan.sites[k].name,
        "number": k + 1,
        "count": len(plan.sites),
        "interface": INTERFACE,
        "store_ports": STORE_PORTS,
    }


def _graph(plan: Plan) -> str:
    links = [f"{plan.sites[a].name} {plan.sites[b].name}\n" for a, b in plan.edges]
    return '# The graph of the training: topology=gossamer.topology.from_file("graph.txt")\n' + "".join(links)
