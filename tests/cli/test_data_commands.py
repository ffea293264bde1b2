import json

import pytest

from gossamer.cli import main


def run(arguments: list[str]) -> int:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    return int(ended.value.code)


@pytest.fixture(autouse=True)
def _nothing_but_what_is_given(monkeypatch, tmp_path):
    monkeypatch.delenv("GOSSAMER_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def test_list_shows_what_is_here_and_how_to_get_the_rest(capsys):
    assert run(["data", "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("digits") and "digits_uci" in line for line in lines)
    assert any("gossamer data get cifar-10" in line for line in lines)


def test_list_as_json(capsys):
    assert run(["data", "list", "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert set(rows) == {"fashion-mnist", "cifar-10", "svhn", "mnist", "digits"}
    assert rows["svhn"]["folder"] is None
    assert rows["digits"]["folder"].endswith("digits_uci")


def test_get_and_verify_what_is_already_here(capsys):
    assert run(["data", "get", "digits"]) == 0
    assert run(["data", "verify", "digits"]) == 0
    out = capsys.readouterr().out
    assert "digits_uci" in out
    assert "2 files" in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(["verify", "svhn"], "gossamer data get svhn"), (["get", "fashion-mnits"], "did you mean 'fashion-mnist'")],
)
def test_what_is_missing_or_unknown_gets_a_sentence(capsys, arguments, words):
    assert run(["data", *arguments]) == 2
    printed = capsys.readouterr().err
    assert printed.startswith("gossamer: ")
    assert printed.count("\n") == 1
    assert words in printed
