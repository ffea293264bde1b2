import json
import struct

import pytest


@pytest.fixture(autouse=True)
def _nothing_but_what_is_given(monkeypatch, tmp_path):
    for variable in ("GOSSAMER_DATA", "GOSSAMER_VERIFY"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def test_list_shows_what_is_here_and_how_to_get_the_rest(gossamer):
    lines = gossamer("data", "list")[0].splitlines()
    assert any(line.startswith("digits") and "digits_uci" in line for line in lines)
    assert any("gossamer data get cifar-10" in line for line in lines)


def test_list_as_json(gossamer):
    rows = {row["name"]: row for row in json.loads(gossamer("data", "list", "--json")[0])}
    assert set(rows) == {"fashion-mnist", "cifar-10", "svhn", "mnist", "digits"}
    assert rows["svhn"]["folder"] is None
    assert rows["digits"]["folder"].endswith("digits_uci")


def test_get_and_verify_what_is_already_here(gossamer):
    out = gossamer("data", "get", "digits")[0] + gossamer("data", "verify", "digits")[0]
    assert "digits_uci" in out
    assert "2 files" in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(["verify", "svhn"], "gossamer data get svhn"), (["get", "fashion-mnits"], "did you mean 'fashion-mnist'")],
)
def test_what_is_missing_or_unknown_gets_a_sentence(gossamer, arguments, words):
    _, err = gossamer("data", *arguments, code=2)
    assert err.startswith("gossamer: ")
    assert err.count("\n") == 1
    assert words in err


def write_other_mnist(folder):
    """Files in the form of MNIST, with 40 black images for training and for testing."""
    for part in ("train", "t10k"):
        images = bytes([0, 0, 8, 3]) + struct.pack(">III", 40, 28, 28) + bytes(40 * 28 * 28)
        (folder / f"{part}-images-idx3-ubyte").write_bytes(images)
        labels = bytes([0, 0, 8, 1]) + struct.pack(">I", 40) + bytes(k % 10 for k in range(40))
        (folder / f"{part}-labels-idx1-ubyte").write_bytes(labels)


def test_a_wrong_checksum_names_a_way_that_works_here(gossamer, monkeypatch, tmp_path):
    write_other_mnist(tmp_path)
    show = ["show", "partition", "iid", "--dataset", "mnist", "--nodes", "2", "--data-dir", tmp_path]
    assert "accept this one with GOSSAMER_VERIFY=0 in the environment" in gossamer(*show, code=2)[1]
    monkeypatch.setenv("GOSSAMER_VERIFY", "0")
    assert "36 samples on 2 nodes" in gossamer(*show)[0]


def test_the_help_names_the_places_in_the_order_in_which_they_are_searched(gossamer):
    told = " ".join(gossamer("data", "list", "--help")[0].replace("│", " ").split())
    assert "before GOSSAMER_DATA, the cache and the system's datasets" in told
