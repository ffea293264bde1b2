"""Sites leave, fail, come back and join while the others go on."""

import json
import signal
import sys
import threading
import time
from http.client import IncompleteRead
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

from gossamer import InputError, Sites, optim, topology
from gossamer._common import checkpoint_file as files
from gossamer.errors import PeerError
from gossamer.network import sites as network_sites
from gossamer.network.sites import Gathering, serve
from tests.optim.site_runs import NAMES, Director, curvature_and_optimum
from tests.processes import start

pytest.importorskip("torchft")

AARE, BODE, CHER, DART, EBRO = NAMES[:5]


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Four sites: killed and back, left and back without a disk, stopped and continued, a NaN, no coordinator."""
    told: dict[str, Any] = {}
    with Director(tmp_path_factory.mktemp("sites"), rounds=1500, patience=1.0, every=40) as director:
        director.advance(NAMES[:4], 20)
        director.kill(CHER)
        director.advance([AARE, BODE, DART])
        told["disk after the first change"] = {name: director.disk(name) for name in (AARE, BODE, DART)}
        told["first change"] = next(change for change in director.changes(AARE) if CHER in change[3])
        director.start(CHER)
        director.advance(NAMES[:4])
        director.send(DART, signal.SIGTERM)
        director.processes[DART].join(10)
        told["exit code of the one that left"] = director.processes[DART].exitcode
        director.advance([AARE, BODE, CHER])
        director.forget(DART)
        director.start(DART)
        director.advance(NAMES[:4])
        director.start(EBRO, method="DSGD", names=NAMES[:5])
        director.processes[EBRO].join(10)
        told["log of the one with another method"] = director.log(EBRO)
        director.advance(NAMES[:4])
        director.kill_coordinator()
        director.advance(NAMES[:4])
        director.start_coordinator()
        director.send(BODE, signal.SIGSTOP)
        director.advance([AARE, CHER, DART])
        director.send(BODE, signal.SIGCONT)
        director.advance(NAMES[:4])
        (director.place / f"{AARE}.nan").touch()
        director.processes[AARE].join(10)
        told["exit code of the one with NaN"] = director.processes[AARE].exitcode
        director.advance([BODE, CHER, DART])
        director.start(AARE)
        told["end"] = director.finish()
        told["logs"] = {name: director.log(name) for name in director.names}
        told["changes"] = director.changes(CHER)
        told["stats after the last change"] = json.loads((director.place / f"{CHER}.changed").read_text())
        told["rounds"] = {name: director.made(name) for name in director.names}
        told["disk"] = {p.parent.name: p.name for p in sorted((director.place / "disk").rglob("*.ckpt"))}
    return told


def test_everybody_finishes_the_same_rounds_in_consensus(story: dict[str, Any]) -> None:
    assert [end["round"] for end in story["end"].values()] == [1500] * 4
    models = torch.tensor([end["x"] for end in story["end"].values()])
    assert models.isfinite().all()
    assert (models - models.mean(0)).norm() < 0.05 * models.mean(0).norm()
    assert all(end["accuracy"] > 0.8 for end in story["end"].values())


def test_the_tracked_mean_is_the_mean_of_the_momenta_after_all_changes(story: dict[str, Any]) -> None:
    corrections = torch.tensor([end["y - u"] for end in story["end"].values()], dtype=torch.float64)
    assert corrections.mean(0).abs().max() < 1e-5 * corrections.abs().max()


def test_rounds_are_never_made_twice_and_all_have_the_same_step_size(story: dict[str, Any]) -> None:
    for made in story["rounds"].values():
        numbers = [number for _, number in made]
        assert numbers == sorted(set(numbers))
    assert len({end["lr"] for end in story["end"].values()}) == 1


def test_the_log_says_who_left_and_why_and_who_is_left(story: dict[str, Any]) -> None:
    log = story["logs"][CHER] + story["logs"][BODE]
    assert f"{DART} left before round" in log
    assert "it said that it would; aare, bode and cher are left." in log
    assert "aare left before round" in log
    assert "its gradient is not finite" in log
    assert f"{BODE} left before round" in story["logs"][CHER]
    assert "it was silent for 1 s; aare, cher and dart are left." in story["logs"][CHER]
    assert "cher left before round" in story["logs"][BODE]
    assert "it closed the connection: it crashed or was stopped; aare, bode and dart are left." in story["logs"][BODE]
    assert f"{DART} joined before round" in log


def test_on_change_and_stats_tell_the_same(story: dict[str, Any]) -> None:
    counted = story["end"][CHER]["stats"]["changes"]  # since it came back
    assert len(story["changes"]) >= counted >= 6
    _, round, sites, left, joined = next(change for change in story["changes"] if DART in change[3])
    assert (sites, list(left), joined) == ([AARE, BODE, CHER], [DART], [])
    assert 0 < round < 1500
    assert story["end"][CHER]["stats"]["sites"] == list(NAMES[:4])


def test_seconds_of_waiting_add_up_over_all_changes(story: dict[str, Any]) -> None:
    waited = story["stats after the last change"]["wait_seconds"]
    end = story["end"][CHER]["stats"]["wait_seconds"]
    assert waited[BODE] > 0.9, "it was silent for a second, and sites have left and joined since then"
    assert all(end[name] >= seconds for name, seconds in waited.items())


def test_a_site_that_leaves_or_has_a_nan_ends_alone(story: dict[str, Any]) -> None:
    assert story["exit code of the one that left"] == 128 + signal.SIGTERM
    assert story["exit code of the one with NaN"] == 1
    assert "DivergenceError: The run diverged: the gradient of node 0 (aare) is nan" in story["logs"][AARE]


def test_a_site_with_other_settings_is_refused_alone(story: dict[str, Any]) -> None:
    sentence = "InputError: This site differs from the others in the method (here: DSGD; there: Momentum Tracking)"
    assert sentence in story["log of the one with another method"]


def test_when_all_are_killed_they_resume_to_the_same_bits(tmp_path: Path) -> None:
    ends = []
    for place, killed in ((tmp_path / "a", False), (tmp_path / "b", True)):
        place.mkdir()
        plan = {"rounds": 70, "every": 20, "pace": 0.004, "at_least": 3, "patience": 5.0}
        with Director(place, NAMES[:3], **plan) as director:
            if killed:
                director.until(lambda d=director: d.round(AARE) > 45)
                for name in director.names:
                    director.kill(name)
                for name in director.names:
                    director.start(name)
            end = director.finish()
        ends.append({name: told["x"] for name, told in end.items()})
    assert ends[0] == ends[1]


def test_below_at_least_those_that_are_there_wait_and_say_so(tmp_path: Path) -> None:
    with Director(tmp_path, NAMES[:3], rounds=150, pace=0.01, at_least=3, patience=5.0) as director:
        director.advance(director.names, 20)
        director.kill(BODE)
        director.until(lambda: "2 of at least 3 sites are there (aare, cher); waiting for more" in director.log(AARE))
        stopped = director.round(AARE)
        director.start(BODE)
        end = director.finish()
    assert stopped < 150
    assert {told["round"] for told in end.values()} == {150}


def test_all_that_are_left_save_the_round_that_they_make_after_a_change(story: dict[str, Any]) -> None:
    _, before, *_ = story["first change"]
    for name, rounds in story["disk after the first change"].items():
        assert before + 1 in rounds, name


@pytest.mark.parametrize("stale", [3, 10_000])
def test_a_site_that_was_away_for_long_takes_the_average_and_another_keeps_its_own(stale: int, tmp_path: Path) -> None:
    plan = {"method": "DSGD", "task": "quadratic", "rounds": 100_000, "every": 100_000, "patience": 10.0}
    with Director(tmp_path, NAMES[:3], **plan, pace=0.01, stale=stale) as director:
        director.advance(director.names, 20)
        director.send(BODE, signal.SIGTERM)
        director.processes[BODE].join(10)
        saved = files.read(files.path_of(tmp_path / "disk" / f"node-{BODE}", max(director.disk(BODE))))
        director.advance([AARE, CHER], 5)
        (tmp_path / f"{BODE}.began").unlink()
        director.start(BODE)
        director.until((tmp_path / f"{BODE}.began").exists)
        director.advance(director.names, 5)
        began = torch.tensor(json.loads((tmp_path / f"{BODE}.began").read_text()), dtype=torch.float64)
        others = [json.loads((tmp_path / f"{name}.changed").read_text())["x"] for name in (AARE, CHER)]
    own = torch.cat([saved["content"]["model"][key].reshape(-1) for key in ("weight", "bias")])
    mean = torch.tensor(others, dtype=torch.float64).mean(0)
    assert (own - mean).abs().max() > 1e-3, "so that one can tell them apart"
    if stale == 3:
        torch.testing.assert_close(began, mean, rtol=1e-12, atol=1e-12)
    else:
        assert torch.equal(began, own)


def test_when_all_are_killed_soon_after_one_has_joined_they_resume_together(tmp_path: Path) -> None:
    with Director(tmp_path, NAMES[:2], rounds=150, every=100, pace=0.01, patience=5.0) as director:
        director.advance(director.names, 20)
        director.names = NAMES[:3]
        director.start(CHER, names=NAMES[:3])
        director.advance(director.names, 5)
        for name in director.names:
            director.kill(name)
        for name in director.names:
            director.start(name, names=NAMES[:3])
        end = director.finish()
    assert {told["round"] for told in end.values()} == {150}


def test_all_have_saved_the_last_round(story: dict[str, Any]) -> None:
    assert story["disk"] == {f"node-{name}": "round-000001500.ckpt" for name in NAMES[:4]}


# What is refused ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"coordinator": "oslo"}, "The coordinator is at HOST:PORT, for instance 10.77.0.1:29510, not 'oslo'."),
        ({"name": "a b"}, "The name of a site consists of letters"),
        ({"at_least": 0}, "at_least"),
        ({"patience": 0}, "patience is 0, but it must be a number of seconds above 0."),
        ({"patience": "60s"}, "patience is '60s', but it must be a number of seconds above 0."),
        ({"patience": float("nan")}, "patience is nan, but it must be a number of seconds above 0."),
        ({"stale": 0}, "stale"),
    ],
)
def test_bad_arguments_of_sites(change: dict[str, Any], sentence: str) -> None:
    given = {"coordinator": "localhost:29510", "name": "oslo", **change}
    with pytest.raises(InputError, match=sentence.replace("(", r"\(")):
        Sites(given.pop("coordinator"), **given)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"node": 0}, "A site is known by its name"),
        ({"timeout": 5.0}, "patience= of Sites"),
        ({"topology": None}, "No graph says which sites talk to each other"),
        ({"topology": "rong"}, "There is no topology 'rong'"),
        ({"group": object()}, "a site is one process"),
    ],
)
def test_options_that_mean_nothing_to_sites(options: dict[str, Any], sentence: str) -> None:
    given = {"topology": "ring", "sites": Sites("localhost:29510", name="oslo"), **options}
    with pytest.raises(InputError, match=sentence):
        optim.DSGD(nn.Linear(2, 1).parameters(), lr=0.1, **given)


def test_a_process_group_inside_a_site_is_refused() -> None:
    sentence = r"a site is one process \(no DDP or FSDP inside it\): leave out group= and init_process_group"
    early = small_optimizer()
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        with pytest.raises(InputError, match=sentence):
            small_optimizer()
        with pytest.raises(InputError, match=sentence):
            early.step()
    finally:
        dist.destroy_process_group()


def test_where_torchft_is_missing_sites_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torchft", None)
    with pytest.raises(
        InputError, match=r"need torchft, which cannot be imported here .*pip install 'gossamer\[elastic"
    ):
        Sites("localhost:29510", name="oslo")


def test_a_coordinator_that_cannot_listen_says_so() -> None:
    with pytest.raises(InputError, match=r"cannot listen at 192\.0\.2\.1:29510 .*give a free --port"):
        serve("192.0.2.1", 29510)


# The coordinator, and a site alone ------------------------------------------------------------------------------------


def small_optimizer(model: nn.Module | None = None) -> optim.DSGD:
    sites = Sites("localhost:1", name="oslo", at_least=1)
    return optim.DSGD((model or nn.Linear(2, 1)).parameters(), lr=0.1, topology="ring", sites=sites)


def test_heartbeats_go_on_when_the_coordinator_dies_while_it_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    sites, gone, beats = Sites("localhost:1", name="oslo"), threading.Event(), []

    class Client:
        def heartbeat(self, *_: Any) -> None:
            beats.append(1)
            if len(beats) == 5:
                gone.set()

    def present() -> frozenset[str]:
        raise IncompleteRead(b"<html>")

    monkeypatch.setattr(network_sites, "_BEAT", 0.001)
    monkeypatch.setattr(network_sites, "_LOOK", 0.0)
    monkeypatch.setattr(sites, "_client", lambda seconds: Client())
    monkeypatch.setattr(sites, "_present", present)
    sites._members = frozenset([sites.id])
    sites.progress()
    sites._attend(gone)
    assert len(beats) == sites._misses == 5


def _end_during_a_heartbeat() -> None:
    asked = threading.Event()

    class Late:
        def heartbeat(self, *_: Any) -> None:
            asked.set()
            time.sleep(0.5)
            print("answered", flush=True)

    sites = Sites("localhost:1", name="oslo")
    sites._client = lambda seconds: Late()  # type: ignore[method-assign]
    sites.progress()
    sites._open()
    asked.wait(10)


def test_a_process_ends_after_the_answer_to_its_heartbeat(tmp_path: Path) -> None:
    """A thread that came back from the coordinator while Python ends would abort the process."""
    process = start(tmp_path / "printed", _end_during_a_heartbeat)
    process.join(60)
    assert (process.exitcode, (tmp_path / "printed").read_text()) == (0, "answered\n")


def test_a_site_of_another_version_is_waited_for_until_it_leaves(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    membership = small_optimizer().membership
    sites, others = membership.sites, [("bergen~1~1", {"round": 5, "at_least": 1})]

    def quorum(round: int, said: dict[str, Any]) -> Any:
        there = [*others, (sites.id, said)]
        return SimpleNamespace(
            participants=[SimpleNamespace(replica_id=id, store_address="", data=data) for id, data in there]
        )

    monkeypatch.setattr(sites, "_quorum", quorum)
    assert sites._gather(membership._told(), time.monotonic()) is None
    assert "oslo: bergen runs another version of Gossamer; waiting until it leaves; install the same" in caplog.text
    others.clear()
    gathering = sites._gather(membership._told(), time.monotonic())
    assert gathering is not None
    assert gathering.names == ("oslo",)


def small_saver(directory: Path, monkeypatch: pytest.MonkeyPatch, live: bool) -> optim.Checkpoints:
    """Of a site that meets only itself and, if `live`, then takes itself for one that others join."""
    model = nn.Linear(2, 1)
    optimizer = small_optimizer(model)
    sites = optimizer.membership.sites

    def meet(told: dict[str, Any]) -> Gathering:
        return Gathering((sites.name,), 0, ({**told, "live": live},), None)

    monkeypatch.setattr(sites, "meet", meet)
    return optim.Checkpoints(directory, model, optimizer, every=1)


def test_what_a_killed_process_has_not_finished_is_removed_when_its_site_joins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unfinished = tmp_path / "node-oslo" / ".round-000000040.ckpt.0a1b.tmp"
    unfinished.parent.mkdir()
    unfinished.touch()
    small_saver(tmp_path, monkeypatch, live=True).resume()
    assert [path.name for path in unfinished.parent.iterdir()] == ["round-000000000.ckpt"]


def test_a_round_that_was_finished_alone_is_no_round_of_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    saver = small_saver(tmp_path, monkeypatch, live=False)
    for round in saver.rounds(2):
        saver.optimizer.step()
        saver.optimizer.network.waiting.failure = PeerError("bergen closed the connection")
        saved = files.rounds_in(saver.directory)
        assert saved == [0], f"round {round} is not saved before all have met again"
    assert files.rounds_in(saver.directory) == [0, 2], "but the last one is"
    again = small_saver(tmp_path, monkeypatch, live=False)
    assert again.resume() == 2
    assert "Other nodes or another graph than in the checkpoints" in caplog.text, "they rejoin"


@pytest.mark.parametrize(
    ("forged", "reason"),
    [
        ({"param_groups": []}, "IndexError"),
        ({"param_groups": [{}]}, "KeyError: 'round'"),
        ({"param_groups": [{"round": 2**80}]}, "ValueError: it is of round 1208925819614629174706176"),
        ({"state": 0}, "TypeError"),
    ],
)
def test_a_forged_checkpoint_is_refused(
    forged: dict[str, Any], reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saver = small_saver(tmp_path, monkeypatch, live=False)
    for _ in saver.rounds(1):
        saver.optimizer.step()
    path = files.path_of(saver.directory, 1)
    saved = files.read(path)
    saved["content"]["optimizer"] |= forged
    files.write(saver.directory, 1, saved["settings"], saved["content"])
    with pytest.raises(InputError, match=rf"{path} does not hold what this run needs \({reason}.* move it away"):
        small_saver(tmp_path, monkeypatch, live=True).resume()


# Graphs ---------------------------------------------------------------------------------------------------------------


def graph_of(given: Any, *names: str, make: Any = optim.DSGD) -> topology.Topology:
    optimizer = make(nn.Linear(2, 1).parameters(), lr=0.1, topology=given, sites=Sites("localhost:1", name=names[0]))
    return optimizer.membership._graph(names)


def test_the_nodes_of_a_graph_are_the_sites_by_name() -> None:
    ring = graph_of("ring", "oslo", "bergen", "tromso")
    assert (ring.name, ring.labels) == ("ring", ("bergen", "oslo", "tromso"))
    own = topology.from_edges([("oslo", "bergen"), ("oslo", "tromso"), ("tromso", "vardo")])
    healed = graph_of(own, "bergen", "tromso", "vardo")
    assert healed.labels == ("bergen", "tromso", "vardo")
    assert healed.graph.is_tree
    new = graph_of(own, *(own.labels or ()), "narvik")
    assert new.labels == ("oslo", "bergen", "tromso", "vardo", "narvik")


def test_a_family_without_a_graph_of_that_size_becomes_exponential(caplog: pytest.LogCaptureFixture) -> None:
    assert graph_of("hypercube", *"abcdefg").name == "exponential"
    assert "exponential graph" in caplog.text


# All methods ----------------------------------------------------------------------------------------------------------

EXACT = ("MomentumTracking", "GradientTracking", "D2", "EDM", "MoTEF", "BEER", "ABm", "LED", "KGT", "AllReduceSGDm")


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("method", [*(o.__name__ for o in optim.ALL), "Outer"])
def test_every_method_goes_on_without_a_site_and_with_it_again(method: str, tmp_path: Path) -> None:
    graph = "chain" if method.startswith("RelaySum") else "ring"
    plan = {"method": method, "topology": graph, "task": "quadratic", "lr": 0.03, "pace": 0.0, "patience": 3.0}
    with Director(tmp_path, rounds=1500, **plan) as director:
        director.advance(director.names, 100)
        director.kill(BODE)
        survivors = [AARE, CHER, DART]
        director.advance(survivors, 600)
        without = {name: torch.tensor(json.loads((tmp_path / f"{name}.x").read_text())) for name in survivors}
        director.start(BODE)
        end = director.finish()
    assert all(told["round"] == 1500 and torch.tensor(told["x"]).isfinite().all() for told in end.values())
    if method in EXACT:
        for name, x in without.items():
            assert (x - optimum(survivors)).abs().max() < 1e-3, name
        for name, told in end.items():
            assert (torch.tensor(told["x"]) - optimum(NAMES[:4])).abs().max() < 1e-3, name


def optimum(names: Any) -> float:
    pairs = [curvature_and_optimum(name) for name in names]
    return sum(a * b for a, b in pairs) / sum(a for a, _ in pairs)
