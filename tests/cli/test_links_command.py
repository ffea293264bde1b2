"""`gossamer links`: what it writes, and what it refuses."""

import base64
import itertools
import os
import shutil
import stat
import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path

import pytest

from gossamer import topology
from gossamer.errors import InputError
from gossamer.links import site_files
from gossamer.links.link_plan import plan_of, read_plan

CHAIN = """
[[site]]
name = "lima"
address = "lima.example.org"

[[site]]
name = "berlin"
address = "2001:db8::1"
neighbours = ["lima"]

[[site]]
name = "tokyo"
address = "192.0.2.3:4000"
neighbours = ["berlin"]

[[site]]
name = "oslo"
neighbours = ["tokyo"]
"""


@pytest.fixture
def links(gossamer, tmp_path):
    """Run `gossamer links` on a file with this text; returns the directory, standard output and standard error."""

    def links(text, *options, code=0):
        (tmp_path / "sites.toml").write_text(text, encoding="utf-8")
        out, err = gossamer("links", tmp_path / "sites.toml", "--out", tmp_path / "links", *options, code=code)
        return tmp_path / "links", out, err

    return links


def sections(file: Path) -> tuple[dict[str, str], dict[str, dict[str, str]]]:
    """[Interface], and every [Peer] by the name in the comment above it."""
    parser = ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    text = file.read_text(encoding="utf-8")
    names = [line[2:] for before, line in itertools.pairwise(text.splitlines()) if before == "[Peer]"]
    for name in names:
        text = text.replace("[Peer]\n", f"[{name}]\n", 1)
    parser.read_string(text)
    return dict(parser["Interface"]), {name: dict(parser[name]) for name in names}


def test_one_tunnel_per_edge_and_to_the_meeting_point(links):
    place, out, _ = links(CHAIN)
    read = {site.name: sections(site / "gossamer.conf") for site in place.iterdir()}
    assert {name: set(peers) for name, (_, peers) in read.items()} == {
        "lima": {"berlin", "tokyo", "oslo"},
        "berlin": {"lima", "tokyo"},
        "tokyo": {"lima", "berlin", "oslo"},
        "oslo": {"lima", "tokyo"},
    }
    assert "5 tunnels between 4 sites" in out
    _, peers = read["lima"]
    assert peers["berlin"]["Endpoint"] == "[2001:db8::1]:51820"
    assert peers["tokyo"]["Endpoint"] == "192.0.2.3:4000"
    assert peers["tokyo"]["AllowedIPs"] == "10.77.0.3/32"
    assert "Endpoint" not in peers["oslo"]  # it has no address, so it must connect by itself
    assert read["tokyo"][0]["ListenPort"] == "4000"
    assert topology.from_file(place / "oslo" / "graph.txt").labels == ("lima", "berlin", "tokyo", "oslo")


def test_a_private_key_is_in_one_file_that_only_its_owner_can_read(links):
    place, *_ = links(CHAIN)
    texts = {file: file.read_text(encoding="utf-8") for file in place.rglob("*") if file.is_file()}
    for site in place.iterdir():
        own = sections(site / "gossamer.conf")[0]["PrivateKey"]
        assert len(base64.b64decode(own)) == 32
        assert [file for file, text in texts.items() if own in text] == [site / "gossamer.conf"]
        assert stat.S_IMODE((site / "gossamer.conf").stat().st_mode) == 0o600
        assert stat.S_IMODE(site.stat().st_mode) == 0o700


@pytest.mark.skipif(shutil.which("wg") is None, reason="there is no wg to compare with")
def test_keys_are_those_of_wireguard(links):
    place, *_ = links(CHAIN)
    for site in place.iterdir():
        private = sections(site / "gossamer.conf")[0]["PrivateKey"]
        public = subprocess.run(["wg", "pubkey"], input=private, capture_output=True, text=True, check=True).stdout
        told = {
            peers[site.name]["PublicKey"]
            for _, peers in map(sections, place.glob("*/gossamer.conf"))
            if site.name in peers
        }
        assert told == {public.strip()}


@pytest.mark.skipif(shutil.which("wg") is None, reason="there is no wg to fall back on")
def test_without_cryptography_wg_makes_the_keys(monkeypatch):
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.asymmetric.x25519", None)
    private, public = site_files.key_maker()()
    asked = subprocess.run(["wg", "pubkey"], input=private, capture_output=True, text=True, check=True)
    assert (len(base64.b64decode(private)), asked.stdout.strip()) == (32, public)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(InputError, match="neither is installed; run: pip install 'gossamer"):
        site_files.key_maker()


def test_a_site_may_keep_its_private_key(links):
    place, *_ = links(CHAIN.replace('name = "tokyo"', f'name = "tokyo"\npublic_key = "{KEY}"'))
    interface, _ = sections(place / "tokyo" / "gossamer.conf")
    assert "PrivateKey" not in interface
    assert interface["PostUp"] == "wg set %i private-key /etc/wireguard/%i.key"
    assert sections(place / "oslo" / "gossamer.conf")[1]["tokyo"]["PublicKey"] == KEY


def test_the_launch_command_is_torchruns_static_form(links):
    place, *_ = links(CHAIN)
    text = (place / "berlin" / "launch.sh").read_text(encoding="utf-8")
    assert "torchrun --nnodes 4 --nproc-per-node 1 --node-rank 1 \\\n    --master-addr 10.77.0.1 --master-port" in text
    for variable in ("GLOO_SOCKET_IFNAME=gossamer", "TORCH_GLOO_LAZY_INIT=1", "GOSSAMER_NODE=berlin"):
        assert f"export {variable}" in text
    assert os.access(place / "berlin" / "launch.sh", os.X_OK)
    assert not any("rdzv" in file.read_text(encoding="utf-8") for file in place.rglob("launch.sh"))


def test_a_mesh_joins_every_pair_and_needs_no_graph(links):
    text = "".join(f'[[site]]\nname = "s{k}"\naddress = "192.0.2.{k + 1}"\n' for k in range(4))
    place, *_ = links(text, "--mesh")
    for site in place.iterdir():
        assert len(sections(site / "gossamer.conf")[1]) == 3
        assert "LAZY" not in (site / "launch.sh").read_text(encoding="utf-8")
        assert not (site / "graph.txt").exists()


def test_a_graph_by_its_name():
    sites = [{"name": f"s{k}", "address": f"192.0.2.{k + 1}"} for k in range(5)]
    plan = plan_of({"graph": "ring", "site": sites})
    assert plan.edges == ((0, 1), (0, 4), (1, 2), (2, 3), (3, 4))
    assert set(plan.tunnels) - set(plan.edges) == {(0, 2), (0, 3)}


def test_a_byte_order_mark_changes_nothing(tmp_path):
    (tmp_path / "a.toml").write_text(CHAIN, encoding="utf-8")
    (tmp_path / "b.toml").write_text(CHAIN, encoding="utf-8-sig")
    assert read_plan(tmp_path / "a.toml") == read_plan(tmp_path / "b.toml")


TWO = '[[site]]\nname = "a"\naddress = "192.0.2.1"\n[[site]]\nname = "b"\naddress = "192.0.2.2"\n'
KEY = base64.b64encode(bytes(range(32))).decode()
REFUSED = {
    "no TOML": ("[[site", "It is not TOML"),
    "too many digits": (f"graph = {'9' * 5000}", "It is not TOML"),
    "too many brackets": (f"graph = {'[' * 2000}", "It is not TOML"),
    "one site": ('[[site]]\nname = "a"', "at least two sites"),
    "no list of sites": ('site = "berlin"', "at least two sites"),
    "an unknown key": (TWO + "adress = 1", "There is no key 'adress'; did you mean 'address'?"),
    "a number as name": (TWO.replace('"a"', "3"), "name must be text in quotes, not 3"),
    "a name with a path": (TWO.replace('"a"', '"../a"'), "A site needs a name of letters"),
    "a name with an escape": (TWO.replace('"a"', '"a\\u001b[2J"'), "A site needs a name of letters"),
    "the same name twice": (TWO.replace('"b"', '"A"'), "Two sites are called 'A'"),
    "the same address twice": (TWO.replace("2.2", "2.1"), "'a' and 'b' have the same address 192.0.2.1:51820"),
    "an address with blanks": (TWO.replace("192.0.2.1", "x y"), "the address 'x y', which is neither a host"),
    "a port too high": (TWO.replace("192.0.2.1", "h:70000"), "the address 'h:70000', which is neither"),
    "an address in the tunnels": (TWO.replace("192.0.2.1", "10.77.0.9"), "lies in 10.77.0.0/24"),
    "a wrong subnet": ('subnet = "10.77.0.1/24"\n' + TWO, "subnet must be a range of IPv4 addresses"),
    "a small subnet": ('subnet = "10.77.0.0/31"\n' + TWO, "addresses for 0 sites, but there are 2"),
    "a wrong key": (TWO + 'public_key = "abc"', "The public_key of 'b' is no key of WireGuard"),
    "the same key twice": (
        TWO.replace('"b"\n', f'"b"\npublic_key = "{KEY}"\n').replace('"a"\n', f'"a"\npublic_key = "{KEY}"\n'),
        "Two sites have the same public_key",
    ),
    "no graph": (TWO, "There is no graph"),
    "an unknown graph": ('graph = "rnig"\n' + TWO, "There is no topology 'rnig'; did you mean 'ring'?"),
    "a schedule": ('graph = "one-peer-exponential"\n' + TWO + '[[site]]\nname = "c"\n[[site]]\nname = "d"\n', "--mesh"),
    "two graphs": ('graph = "ring"\n' + TWO + 'neighbours = ["a"]', "The graph is given twice"),
    "an unknown neighbour": (TWO + 'neighbours = ["c"]', "Among the neighbours of 'b': There is no site 'c'"),
    "itself as neighbour": (TWO + 'neighbours = ["b"]', "'b' is among its own neighbours"),
    "no list of neighbours": (TWO + 'neighbours = "a"', "must be a list of names, not 'a'"),
    "parts without a path": (
        TWO + 'neighbours = ["a"]\n[[site]]\nname = "c"\naddress = "192.0.2.3"\n',
        "No path of neighbours joins 'a' and 'c'",
    ),
    "two sites that cannot be reached": (
        TWO.replace('address = "192.0.2.1"', "").replace('address = "192.0.2.2"', 'neighbours = ["a"]'),
        "'a' and 'b' need a tunnel, but neither has an address",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("text", "sentence"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_is_refused_in_one_sentence_and_nothing_is_written(links, tmp_path, text, sentence):
    _, out, err = links(text, code=2)
    assert sentence in err
    assert err.startswith("gossamer: ")
    assert len(err.splitlines()) == 1
    assert not out
    assert [file.name for file in tmp_path.iterdir()] == ["sites.toml"]


def test_keys_are_never_overwritten(links, tmp_path):
    place, *_ = links(CHAIN)
    before = {file: file.read_bytes() for file in place.rglob("*.conf")}
    _, _, err = links(CHAIN, code=2)
    assert "exists, and keys in it may be in use" in err
    assert {file: file.read_bytes() for file in place.rglob("*.conf")} == before
    assert sorted(file.name for file in tmp_path.iterdir()) == ["links", "sites.toml"]


def test_a_full_disk_leaves_nothing_behind(links, tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(site_files, "_launch", fail)
    _, _, err = links(CHAIN, code=2)
    assert "No space left on device" in err
    assert [file.name for file in tmp_path.iterdir()] == ["sites.toml"]


def test_a_missing_file_and_an_impossible_place_are_sentences(gossamer, tmp_path):
    (tmp_path / "sites.toml").write_text(CHAIN, encoding="utf-8")
    _, err = gossamer("links", tmp_path / "sites.toml", "--out", tmp_path / ("x" * 300), code=2)
    assert "File name too long" in err
    _, err = gossamer("links", tmp_path / "none.toml", "--out", tmp_path / "out", code=2)
    assert f"There is no file {tmp_path / 'none.toml'}; correct its path." in err
