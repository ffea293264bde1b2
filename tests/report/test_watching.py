"""What `gossamer watch` says of runs and sweeps, while they are made and afterwards, and of nodes that are silent."""

import re
import shutil
import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from gossamer.errors import InputError
from gossamer.experiments.experiment import Experiment
from gossamer.experiments.locks import alone
from gossamer.experiments.store import PLAN, StoredRun, planned, write_json
from gossamer.experiments.sweep import run_sweep
from gossamer.report.watching import Node, Snapshot, Watch, WatchedRun, addresses

TINY = {"rounds": 4, "batch_size": 16, "evaluations": 4, "nodes": 2, "partition": "k-class:k=5", "lr": 0.05}
GRID = [Experiment(**{**TINY, "seed": seed}) for seed in (0, 1)]
GRID.append(Experiment(**{**TINY, "lr": 1e9, "rounds": 30}))


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Snapshot]]:
    """A real sweep, and what was seen of it after each evaluation."""
    place, looks = tmp_path_factory.mktemp("sweep"), list[Snapshot]()
    run_sweep(GRID, place, on_row=lambda experiment, row: looks.append(Watch([str(place)]).look()))
    return place, looks


def test_a_sweep_is_followed(sweep: tuple[Path, list[Snapshot]]) -> None:
    place, looks = sweep
    assert planned(place) == [e.id for e in GRID]
    third = looks[2].sweeps[0]
    assert (third.total, third.ended["done"]) == (3, 0)
    (run,) = third.running
    assert (run.status, run.part, run.title) == ("running", 0.5, "Momentum Tracking, lr 0.05, seed 0")
    assert re.fullmatch(r"accuracy [\d.]+ %", run.reached)
    assert run.left is not None
    assert third.left is not None
    assert third.left > run.left >= 0
    assert third.part == pytest.approx(0.5 / 3)
    assert not looks[2].settled
    later = looks[7].sweeps[0]
    assert later.ended["done"] == 1
    parts = [look.sweeps[0].part for look in looks]
    assert parts == sorted(parts)
    after = Watch([str(place)]).look()
    assert after.settled
    assert after.sweeps[0].ended == {"done": 2, "diverged": 1, "failed": 0, "unreadable": 0}
    ((title, table),) = after.tables()
    assert title == f"{place}: 100 % of 3 runs, 2 done, 1 diverged, 0 being made"
    assert not table.rows


def test_a_single_run_is_followed(sweep: tuple[Path, list[Snapshot]], tmp_path: Path) -> None:
    place, _ = sweep
    shutil.copytree(place / GRID[0].id, tmp_path / "run")
    (done,) = Watch([str(tmp_path / "run")]).look().runs
    assert (done.status, done.part, done.left) == ("done", 1.0, None)
    (tmp_path / "run" / "done.json").unlink()
    rows = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "run" / "metrics.jsonl").write_text("".join(rows[:2]))
    (stopped,) = Watch([str(tmp_path / "run")]).look().runs
    assert (stopped.status, stopped.part, stopped.left) == ("stopped", 0.25, None)
    with alone(tmp_path / "run"):
        (running,) = Watch([str(tmp_path / "run")]).look().runs
    assert (running.status, running.part) == ("running", 0.25)
    (tmp_path / ".claims" / "run").write_text(f"{2**22 + 1} ")  # a process of another machine
    assert Watch([str(tmp_path / "run")]).look().runs[0].status == "running"


def test_the_reason_of_a_failure_is_shown(sweep: tuple[Path, list[Snapshot]]) -> None:
    place, _ = sweep
    look = Watch([str(place / GRID[2].id)]).look()
    assert look.runs[0].status == "diverged"
    assert look.sentences()[0].startswith("Momentum Tracking, lr 1e+09, seed 0: ")
    assert look.sentences()[0].endswith(str(StoredRun(place / GRID[2].id).outcome["reason"]))


def test_a_damaged_run_is_named(tmp_path: Path) -> None:
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "run.json").write_text("{")
    look = Watch([str(tmp_path / "broken")]).look()
    assert (look.runs[0].status, look.settled) == ("unreadable", True)
    assert "run.json" in look.sentences()[0]
    write_json(tmp_path / PLAN, {"runs": ["../../etc"]})
    with pytest.raises(InputError, match=r"sweep\.json"):
        Watch([str(tmp_path)]).look()


def test_the_command_shows_runs_in_80_columns_and_ends_with_them(
    sweep: tuple[Path, list[Snapshot]], tmp_path: Path, gossamer: Callable[..., tuple[str, str]]
) -> None:
    place, _ = sweep
    page = tmp_path / "watch.html"
    printed, _ = gossamer("watch", place / GRID[0].id, "--every", 0.1)
    assert re.search(r"^Momentum Tracking, lr 0\.05, seed 0 +done +100 % +accuracy [\d.]+ %", printed, re.MULTILINE)
    assert max(map(len, printed.splitlines())) <= 80
    assert gossamer("watch", place, "--html", page)[0] == ""
    assert "3 runs, 2 done, 1 diverged" in page.read_text()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "There is nothing to watch; give directories of runs, or addresses of nodes"),
        (["nowhere"], "'nowhere' is neither a directory nor an address"),
        (["host:99999"], "'host:99999' is neither a directory nor an address"),
        (["127.0.0.1:1", "--every", "0"], "it must be above 0, not 0"),
    ],
)
def test_what_cannot_be_watched_is_refused(
    arguments: list[str], sentence: str, gossamer: Callable[..., tuple[str, str]]
) -> None:
    assert sentence in gossamer("watch", *arguments, code=2)[1]


def test_an_empty_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No runs in"):
        Watch([str(tmp_path)]).look()


def test_a_node_that_was_never_there_and_a_stranger() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{held.getsockname()[1]}"
        look = Watch([f"http://{address}/metrics"]).look()
    assert look.nodes == [Node(address, silent=0.0)]
    assert look.sentences() == [f"{address} does not answer."]
    assert not look.settled
    assert addresses("h:1-3") == ["h:1", "h:2", "h:3"]


NODE = Node("a:1", "berlin", 7, figures={"loss": 0.5}, sent=2e6)


def test_who_waits_for_whom() -> None:
    waiting = replace(NODE, waits_for="oslo", waited=65.0)
    busy = replace(NODE, name="oslo", round=6, changes=2)
    look = Snapshot([], [], [waiting, busy])
    assert re.fullmatch(r"berlin waits for oslo since [\d:]+ \(65 s\), which is busy in round 6\.", look.sentences()[0])
    ((_, table),) = look.tables()
    assert table.head[-1] == "changes"
    assert [row[-1] for row in table.rows] == ["–", "2"]
    both = Snapshot([], [], [waiting, replace(busy, waits_for="berlin", waited=3.0)])
    assert all("which waits for it in turn: look at the network between the two" in s for s in both.sentences())
    everyone = Snapshot([], [], [replace(NODE, waits_for="all", waited=3.0)])
    assert re.fullmatch(r"berlin waits for all others since [\d:]+ \(3 s\)\.", everyone.sentences()[0])


def test_a_long_wait_does_not_hide_a_failed_run() -> None:
    look = Snapshot(
        [WatchedRun("a", "failed", 0.5, "–", None, "no data")], [], [replace(NODE, waits_for="x", waited=2.0)]
    )
    assert look.sentences()[0] == "a: no data"
