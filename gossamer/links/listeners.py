"""What listens on this machine, and which of it strangers may reach: read from /proc, so on Linux only."""

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from itertools import pairwise
from pathlib import Path

from gossamer.links.site_files import INTERFACE, STORE_PORTS, SYSTEM_PORTS

VARIABLES = (
    "MASTER_ADDR", "MASTER_PORT", "GLOO_SOCKET_IFNAME", "TORCH_GLOO_LAZY_INIT", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE",
    "GOSSAMER_NODE",
)  # fmt: skip
"""The environment variables that decide where the processes of a training meet and listen."""

_LISTENING = "0A"  # the state in /proc/net/tcp


@dataclass(frozen=True)
class Listener:
    """A TCP port at which a process waits for connections."""

    address: str
    port: int
    interface: str
    """Its name; "" for all interfaces, "?" if no interface has the address."""
    process: str
    """What was started; "" if it is another user's."""
    torch: bool
    """Whether the process has loaded torch: its port is then gloo's or, on all interfaces, the store's."""
    coordinator: bool
    """Whether the process is `gossamer coordinator`, which has loaded torch too."""

    @property
    def is_local(self) -> bool:
        """Whether only this machine can connect."""
        return ip_address(self.address).is_loopback


def can_look() -> bool:
    """Whether this system has the files that are read here."""
    return Path("/proc/net/tcp").exists()


def listeners() -> list[Listener]:
    """What listens in this network namespace, by port."""
    owners = _owners()
    names = {_address_of(name): name for _, name in socket.if_nameindex()}
    found = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        lines = Path(table).read_text(encoding="ascii").splitlines()[1:] if Path(table).exists() else []
        for words in map(str.split, lines):
            if words[3] != _LISTENING:
                continue
            digits, _, port = words[1].partition(":")
            address = _decoded(digits)
            interface = "" if address.is_unspecified else "lo" if address.is_loopback else names.get(str(address), "?")
            owner = owners.get(words[9], ("", False, False))
            found.add(Listener(str(address), int(port, 16), interface, *owner))
    return sorted(found, key=lambda one: (one.port, one.address))


def warnings(found: list[Listener]) -> list[str]:
    """One sentence for each port of torch that strangers may reach, and for each setting that cannot work."""
    rules = has_rules()
    told = []
    for one in found:
        where = f"port {one.port} of {one.interface or 'all interfaces'} ({one.process})"
        guarded = rules and _in_rules(one.port)
        if not one.torch or one.is_local or guarded or _is_tunnel(one.interface):
            continue
        if one.coordinator:
            told.append(f"gossamer coordinator listens on {where}: whoever reaches it can join the run or disturb it.")
        elif one.interface:
            told.append(f"gloo listens on {where}: whoever reaches it can read and forge messages.")
        else:
            told.append(
                f"torch's store listens on {where}: whoever reaches it can change what the nodes agree on and, if "
                "torchrun was started with --standalone or --rdzv-backend c10d, run code here."
            )
    if told:
        told.append("Refuse these ports from outside; gossamer links writes tunnels and firewall rules that do.")
    if rules and (ports := _local_ports()) != SYSTEM_PORTS:
        told.append(
            f"The firewall rules of gossamer links protect {SYSTEM_PORTS}, but net.ipv4.ip_local_port_range, from "
            f"which gloo's ports come, is {ports}; make them agree."
        )
    chosen = os.environ.get("GLOO_SOCKET_IFNAME")
    if chosen and chosen not in (name for _, name in socket.if_nameindex()):
        told.append(f"GLOO_SOCKET_IFNAME names the interface '{chosen}', which this machine does not have.")
    return told


def has_rules() -> bool | None:
    """Whether the firewall rules of `gossamer links` are loaded; None if only root can tell."""
    program = shutil.which("nft", path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin")
    if program is None:
        return False
    asked = subprocess.run([program, "list", "table", "inet", INTERFACE], capture_output=True, text=True, check=False)
    return None if "not permitted" in asked.stderr else asked.returncode == 0


def _decoded(digits: str) -> IPv4Address | IPv6Address:
    """/proc writes an address as words of 32 bits, each as a number in the byte order of the machine."""
    words = (int(digits[k : k + 8], 16).to_bytes(4, sys.byteorder) for k in range(0, len(digits), 8))
    address = ip_address(b"".join(words))
    return getattr(address, "ipv4_mapped", None) or address


def _owners() -> dict[str, tuple[str, bool, bool]]:
    """By the inode of a socket: what was started, whether it has loaded torch, and whether it is the coordinator."""
    owners: dict[str, tuple[str, bool, bool]] = {}
    for process in _processes():
        try:
            targets = [_target(entry) for entry in (process / "fd").iterdir()]
            inodes = [target[len("socket:[") : -1] for target in targets if target.startswith("socket:[")]
            if inodes:
                words = (process / "cmdline").read_bytes().decode(errors="replace").strip("\0").split("\0")
                torch = "/libtorch" in (process / "maps").read_text(encoding="utf-8", errors="replace")
                shown = f"{process.name}: {' '.join(words)[:60]}"
                owners |= dict.fromkeys(inodes, (shown, torch, _is_coordinator(words)))
        except OSError:  # it has ended, or belongs to somebody else
            continue
    return owners


def _is_coordinator(words: list[str]) -> bool:
    """Whether a command line is that of `gossamer coordinator`, in any of its spellings.

    >>> _is_coordinator(["python", "/usr/bin/gossamer", "coordinator"]), _is_coordinator(["python", "train.py"])
    (True, False)
    """
    return any(Path(a).name == "gossamer" and b == "coordinator" for a, b in pairwise(words))


def _target(entry: Path) -> str:
    """What an open file is; empty if it has been closed meanwhile."""
    try:
        return entry.readlink().name
    except OSError:
        return ""


def _processes() -> Iterator[Path]:
    return (entry for entry in Path("/proc").iterdir() if entry.name.isdigit())


def _address_of(interface: str) -> str:
    """The IPv4 address of an interface; empty if it has none."""
    import fcntl

    ask = 0x8915  # SIOCGIFADDR
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        try:
            answer = fcntl.ioctl(any_socket, ask, interface.encode()[:15].ljust(256, b"\0"))
        except OSError:
            return ""
    return socket.inet_ntoa(answer[20:24])


def _is_tunnel(interface: str) -> bool:
    """Whether an interface is WireGuard's, in the kernel or by a program."""
    place = Path("/sys/class/net") / (interface or "-")
    if (place / "tun_flags").exists():
        return True
    return (place / "uevent").exists() and "DEVTYPE=wireguard" in (place / "uevent").read_text(encoding="utf-8")


def _in_rules(port: int) -> bool:
    ranges = (tuple(map(int, ports.split("-"))) for ports in (STORE_PORTS, SYSTEM_PORTS))
    return any(low <= port <= high for low, high in ranges)


def _local_ports() -> str:
    return "-".join(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii").split())
