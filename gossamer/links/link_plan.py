"""Which sites there are, where they are reached, and between which of them there is a tunnel.

    graph = "ring"                       # or neighbours = ["lima"] in the tables of the sites

    [[site]]
    name = "berlin"
    address = "berlin.example.org"       # where the others reach it, with :PORT unless that is 51820

The first site is the meeting point: it runs the rendezvous store, so every other site has a tunnel to it.
"""

import base64
import binascii
import re
import tomllib
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, ip_address
from itertools import combinations
from pathlib import Path
from typing import Any

from gossamer import topology
from gossamer._common.files import read_text
from gossamer.errors import InputError, unknown

WIREGUARD_PORT = 51820
USUAL_SUBNET = "10.77.0.0/24"

_KEYS = ("graph", "subnet", "site")
_SITE_KEYS = ("name", "address", "neighbours", "public_key")
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?")
_ENDPOINT = re.compile(r"(\[(?P<bracketed>[^\]]*)\]|(?P<plain>[^:]*))(:(?P<port>\d{1,5}))?")


@dataclass(frozen=True)
class Site:
    """One site: its name, where it is reached, and its address inside the tunnels."""

    name: str
    endpoint: str | None
    """HOST:PORT as WireGuard writes it; None if the site cannot be reached and always connects by itself."""
    port: int
    inside: IPv4Address
    public_key: str | None
    """If the site made its keys itself; its private key is then not known here."""


@dataclass(frozen=True)
class Plan:
    """Sites, the graph in which they train, and their tunnels; sites are numbered in their order."""

    sites: tuple[Site, ...]
    subnet: IPv4Network
    edges: tuple[tuple[int, int], ...]
    """Who exchanges messages with whom; empty if every pair has a tunnel and the training chooses."""
    tunnels: tuple[tuple[int, int], ...]

    @property
    def is_mesh(self) -> bool:
        """Whether every two sites have a tunnel."""
        return len(self.tunnels) == len(self.sites) * (len(self.sites) - 1) // 2

    def peers(self, site: int) -> list[int]:
        """The sites to which this one has a tunnel, ascending."""
        return sorted({a + b - site for a, b in self.tunnels if site in (a, b)})


def read_plan(path: Path | str, mesh: bool = False) -> Plan:
    """The plan that a TOML file describes: one tunnel per edge and to the first site, or with `mesh` one per pair."""
    text = read_text(path)
    try:
        return plan_of(_values(text), mesh)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def plan_of(values: dict[str, Any], mesh: bool = False) -> Plan:
    """The plan that the values of a TOML file describe.

    >>> chain = [{"name": "lima", "address": "192.0.2.1"}, {"name": "oslo"}, {"name": "rome", "neighbours": ["lima"]}]
    >>> chain[1]["neighbours"] = ["lima"]
    >>> plan_of({"site": chain}).tunnels
    ((0, 1), (0, 2))
    """
    _check_keys(values, _KEYS)
    tables = values.get("site")
    if not isinstance(tables, list) or len(tables) < 2 or not all(isinstance(table, dict) for table in tables):
        raise InputError("Links join at least two sites; write a table [[site]] with a name and an address for each.")
    subnet = _subnet(_text(values, "subnet") or USUAL_SUBNET)
    if len(tables) > subnet.num_addresses - 2:
        raise InputError(
            f"The subnet {subnet} has addresses for {max(subnet.num_addresses - 2, 0)} sites, but there are "
            f'{len(tables)}; write a larger one, as in subnet = "10.77.0.0/16".'
        )
    sites = tuple(_site(table, subnet[k + 1]) for k, table in enumerate(tables))
    _check_distinct(sites, subnet)
    edges = _edges(values, tables, [site.name for site in sites], mesh)
    pairs = set(combinations(range(len(sites)), 2)) if mesh else {*edges, *((0, k) for k in range(1, len(sites)))}
    for a, b in sorted(pairs):
        if sites[a].endpoint is None and sites[b].endpoint is None:
            raise InputError(
                f"The sites '{sites[a].name}' and '{sites[b].name}' need a tunnel, but neither has an address at which "
                "the other could reach it; give one of them an address."
            )
    return Plan(sites, subnet, edges, tuple(sorted(pairs)))


def _values(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # ValueError: also a number of thousands of digits
        raise InputError(f"It is not TOML: {error}; write key = value, with words in quotes.") from None


def _check_keys(values: dict[str, Any], known: tuple[str, ...]) -> None:
    for key in values:
        if key not in known:
            raise unknown("key", key, known)


def _text(values: dict[str, Any], key: str) -> str:
    """A setting that is a word; empty if it is left out."""
    value = values.get(key, "")
    if not isinstance(value, str):
        raise InputError(f"{key} must be text in quotes, not {value!r}.")
    return value


def _subnet(text: str) -> IPv4Network:
    try:
        return IPv4Network(text)
    except ValueError:
        raise InputError(f"subnet must be a range of IPv4 addresses such as '{USUAL_SUBNET}', not '{text}'.") from None


def _site(table: dict[str, Any], inside: IPv4Address) -> Site:
    _check_keys(table, _SITE_KEYS)
    name = _text(table, "name")
    if not _NAME.fullmatch(name):
        raise InputError(
            f"A site needs a name of letters, digits, dots, dashes and underscores that begins and ends with a letter "
            f"or digit and has at most 63 of them, not {name!r}."
        )
    endpoint, port = _endpoint(name, _text(table, "address"))
    key = _text(table, "public_key") or None
    if key is not None:
        _check_key(name, key)
    return Site(name, endpoint, port, inside, key)


def _endpoint(name: str, address: str) -> tuple[str | None, int]:
    """Where a site is reached, as WireGuard writes it, and the port at which it listens."""
    if not address:
        return None, WIREGUARD_PORT
    # An IPv6 address without brackets has several colons of its own.
    match = _ENDPOINT.fullmatch(f"[{address}]" if address.count(":") > 1 and address[0] != "[" else address)
    port = int((match and match["port"]) or WIREGUARD_PORT)
    if match and 0 < port < 65536:
        host = match["bracketed"] or match["plain"]
        if match["plain"] and _HOST.fullmatch(host):
            return f"{host}:{port}", port
        if match["bracketed"] and _is_ipv6(host):
            return f"[{host}]:{port}", port
    raise InputError(
        f"The site '{name}' has the address '{address}', which is neither a host, HOST:PORT nor [IPV6]:PORT; write it "
        f'as in address = "{name}.example.org".'
    )


def _is_ipv6(host: str) -> bool:
    try:
        return ip_address(host).version == 6
    except ValueError:
        return False


def _check_key(name: str, key: str) -> None:
    try:
        decoded = base64.b64decode(key, validate=True)
    except (binascii.Error, ValueError):
        decoded = b""
    if len(decoded) != 32 or base64.b64encode(decoded).decode() != key:
        raise InputError(
            f"The public_key of '{name}' is no key of WireGuard; write what wg pubkey prints, 44 characters."
        )


def _check_distinct(sites: tuple[Site, ...], subnet: IPv4Network) -> None:
    names: set[str] = set()
    endpoints: dict[str, str] = {}
    keys = [site.public_key for site in sites if site.public_key]
    if len(set(keys)) < len(keys):
        raise InputError("Two sites have the same public_key, so WireGuard could not tell them apart; make new keys.")
    for site in sites:
        if site.name.casefold() in names:  # directories are named after sites, and some disks ignore the case
            raise InputError(f"Two sites are called '{site.name}'; give each a name of its own.")
        names.add(site.name.casefold())
        if site.endpoint is None:
            continue
        if site.endpoint in endpoints:
            raise InputError(
                f"The sites '{endpoints[site.endpoint]}' and '{site.name}' have the same address {site.endpoint}; give "
                "each its own host or port."
            )
        endpoints[site.endpoint] = site.name
        host = site.endpoint.rpartition(":")[0]
        if re.fullmatch(r"[\d.]+", host) and _inside(host, subnet):
            raise InputError(
                f"The address {host} of '{site.name}' lies in {subnet}, the subnet of the tunnels; write another "
                'range, as in subnet = "10.78.0.0/24".'
            )


def _inside(host: str, subnet: IPv4Network) -> bool:
    try:
        return IPv4Address(host) in subnet
    except ValueError:
        return False


def _edges(
    values: dict[str, Any], tables: list[dict[str, Any]], names: list[str], mesh: bool
) -> tuple[tuple[int, int], ...]:
    """The edges of the training's graph by the numbers of the sites; none if it is left open, as a mesh may."""
    listed = any("neighbours" in table for table in tables)
    spec = _text(values, "graph")
    if listed and spec:
        raise InputError("The graph is given twice, by its name and by neighbours; leave one of them out.")
    if listed:
        return _listed(tables, names)
    if spec:
        return _named(spec, names)
    if mesh:
        return ()
    raise InputError(
        'There is no graph; write graph = "ring" or the neighbours of each site, or make a tunnel for every pair by '
        "--mesh."
    )


def _listed(tables: list[dict[str, Any]], names: list[str]) -> tuple[tuple[int, int], ...]:
    edges = set()
    for k, table in enumerate(tables):
        neighbours = table.get("neighbours", [])
        if not isinstance(neighbours, list) or not all(isinstance(other, str) for other in neighbours):
            raise InputError(f"The neighbours of '{names[k]}' must be a list of names, not {neighbours!r}.")
        for other in neighbours:
            if other not in names:
                raise InputError(f"Among the neighbours of '{names[k]}': {unknown('site', other, names)}")
            if other == names[k]:
                raise InputError(f"The site '{other}' is among its own neighbours; leave it out there.")
            edges.add((min(k, names.index(other)), max(k, names.index(other))))
    return _connected(edges, names)


def _named(spec: str, names: list[str]) -> tuple[tuple[int, int], ...]:
    graph = topology.get(spec, len(names))
    if not graph.is_static or not graph.is_symmetric:
        raise InputError(
            f"In the graph '{spec}' neighbours change from round to round or messages go one way; leave graph out and "
            "make a tunnel for every pair: --mesh."
        )
    order = graph.labels or names
    if sorted(order) != sorted(names):
        raise InputError(f"The graph '{spec}' joins {', '.join(order)}, but the sites are {', '.join(names)}.")
    numbers = [names.index(name) for name in order]
    pairs = ((numbers[a], numbers[b]) for a, b in graph.graph.edges.tolist())
    return _connected({(min(pair), max(pair)) for pair in pairs}, names)


def _connected(edges: set[tuple[int, int]], names: list[str]) -> tuple[tuple[int, int], ...]:
    alone = topology.Graph(len(names), sorted(edges) or ()).unreachable
    if alone is not None:
        raise InputError(
            f"No path of neighbours joins '{names[0]}' and '{names[alone]}', so they could not train together; add "
            "neighbours until the graph is connected."
        )
    return tuple(sorted(edges))
