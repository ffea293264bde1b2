"""What the benchmarks record is judged rightly, written whole, and told by the documentation as it is."""

import importlib
import json
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SCRIPTS = sorted((ROOT / "benchmarks").glob("[a-z]*.py"))


@pytest.fixture
def shared(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    return importlib.import_module("_measurements")


@pytest.fixture
def blocks(monkeypatch, tmp_path):
    """The maker of the documentation's table, with the scripts `fast` and `slow` and no records."""
    monkeypatch.syspath_prepend(ROOT / "docs" / "making")
    module = importlib.import_module("measured_blocks")
    monkeypatch.setattr(module, "SCRIPTS", tmp_path / "benchmarks")
    monkeypatch.setattr(module, "RECORDS", tmp_path / "records")
    (tmp_path / "benchmarks").mkdir()
    for name in ("fast", "slow", "_shared"):
        (tmp_path / "benchmarks" / f"{name}.py").touch()
    return module


@pytest.mark.parametrize(
    ("value", "limit", "options", "met"),
    [
        (1.0, None, {}, None),
        (1.4, 1.5, {}, True),
        (1.5, 1.5, {}, True),
        (1.6, 1.5, {}, False),
        (1.5, 1.5, {"strict": True}, False),
        (1.4, 1.5, {"strict": True}, True),
        (1.4, 1.5, {"at_most": False}, False),
        (1.5, 1.5, {"at_most": False}, True),
        (1.5, 1.5, {"at_most": False, "strict": True}, False),
        (float("nan"), 1.5, {}, False),
        (float("nan"), 1.5, {"at_most": False}, False),
    ],
)
def test_a_limit_is_met_or_missed(shared, value, limit, options, met):
    assert shared.Measurement("x", value, limit=limit, **options).met is met


def test_the_line_says_the_limit_and_the_verdict(shared):
    assert shared.Measurement("x", 1.6, limit=1.5).judgement == "≤ 1.50  missed"
    assert shared.Measurement("x", 1.6, limit=1.5, at_most=False).judgement == "≥ 1.50  met"
    assert shared.Measurement("x", 1.0, limit=1.0, strict=True).judgement == "< 1.00  missed"
    assert shared.Measurement("x", 1.6).judgement == ""


def test_the_record_holds_everything(shared, monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "argv", ["somewhere/benchmarks/fast.py"])
    place = tmp_path / "new" / "fast.json"
    place.parent.mkdir()
    measurements = [
        shared.Measurement("a round", 3.5, "ms", case="ring"),
        shared.Measurement("a round over a bare one", 1.2, limit=1.15, case="ring"),
    ]
    assert shared.finish(measurements, Namespace(rounds=3, only="a,b", role=None, json=place)) == 1
    assert [path.name for path in place.parent.iterdir()] == ["fast.json"]
    told = json.loads(place.read_text(encoding="utf-8"))
    assert list(told) == ["benchmark", "command", "measurements", "environment"]
    assert told["benchmark"] == "fast"
    assert told["command"] == "python benchmarks/fast.py --rounds 3 --only a,b"
    assert told["measurements"] == [
        {"what": "ring: a round", "value": 3.5, "unit": "ms", "limit": None, "at_most": True, "met": None},
        {
            "what": "ring: a round over a bare one",
            "value": 1.2,
            "unit": "ratio",
            "limit": 1.15,
            "at_most": True,
            "met": False,
        },
    ]
    assert {"torch", "cores", "commit"} <= set(told["environment"])


def test_the_exit_code_is_that_of_the_limits(shared):
    context, kept, missed = (shared.Measurement("x", 2.0, limit=limit) for limit in (None, 2.0, 1.0))
    assert shared.finish([], Namespace(json=None)) == 0
    assert shared.finish([context, kept], Namespace(json=None)) == 0
    assert shared.finish([context, missed, kept], Namespace(json=None)) == 1


def test_a_place_that_cannot_be_written_is_refused_before_anything_is_measured(shared, monkeypatch, tmp_path, capsys):
    (tmp_path / "file").touch()
    monkeypatch.setattr(sys, "argv", ["fast.py", "--json", str(tmp_path / "file" / "fast.json")])
    with pytest.raises(SystemExit) as ended:
        shared.options_of(ArgumentParser())
    assert ended.value.code == 2
    assert "is a file, not a directory" in capsys.readouterr().err


@pytest.mark.usefixtures("shared")
def test_a_script_records_what_it_prints(monkeypatch, tmp_path, capsys):
    place = tmp_path / "startup.json"
    startup = importlib.import_module("startup")
    monkeypatch.setattr(startup, "COMMANDS", {name: ["-c", "pass"] for name in startup.COMMANDS})
    monkeypatch.setattr(sys, "argv", ["benchmarks/startup.py", "--repeats", "1", "--json", str(place)])
    code = startup.main()
    told = json.loads(place.read_text(encoding="utf-8"))
    assert told["command"] == "python benchmarks/startup.py --repeats 1"
    assert code == int(not all(m["met"] for m in told["measurements"]))
    printed = [f"{m['what']}: {m['value']:.0f} ms (limit {m['limit']:.0f})" for m in told["measurements"]]
    assert capsys.readouterr().out.splitlines() == printed


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_every_script_records_in_the_same_way(script):
    text = script.read_text(encoding="utf-8")
    assert "options = options_of(parser)\n" in text or "options = options_or_serve(parser, ROLES)\n" in text
    assert "    return finish(" in text
    assert "[--json FILE]" in text
    assert "parse_args" not in text


def test_the_table_shows_missed_limits_and_what_was_not_run(blocks, tmp_path):
    rows = [
        {"what": "kept", "value": 1.1, "unit": "ratio", "limit": 1.15, "at_most": True, "met": True},
        {"what": "broken", "value": 1.2041, "unit": "ratio", "limit": 1.4, "at_most": False, "met": False},
        {"what": "outside", "value": 0.2, "unit": "share", "limit": 0.15, "at_most": True, "met": False},
        {"what": "all in all", "value": 1.5, "unit": "ratio", "limit": None, "at_most": True, "met": None},
        {"what": "quick", "value": 90.0, "unit": "ms", "limit": 100, "at_most": True, "met": True},
        {"what": "transfer", "value": 30.0, "unit": "ms", "limit": None, "at_most": True, "met": None},
    ]
    (tmp_path / "records").mkdir()
    (tmp_path / "records" / "fast.json").write_text(json.dumps({"measurements": rows}), encoding="utf-8")
    assert blocks.benchmarks().splitlines() == [
        "| benchmark | what | measured | limit | met |",
        "| --- | --- | --- | --- | --- |",
        "| `fast` | kept | 1.100 | ≤ 1.15 | yes |",
        "| `fast` | broken | 1.204 | ≥ 1.4 | **missed** |",
        "| `fast` | outside | 20.0 % | ≤ 15 % | **missed** |",
        "| `fast` | all in all | 1.500 | – | – |",
        "| `fast` | quick | 90.0 ms | ≤ 100 ms | yes |",
        "| `slow` | – | not run | – | – |",
    ]


def test_without_any_record_nothing_was_run(blocks):
    assert blocks.benchmarks().count("not run") == 2
