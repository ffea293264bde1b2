"""Checkpoints of a node on its own, without other processes."""

import errno
import logging
import os
import random
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.distributed import HashStore
from torch.optim.lr_scheduler import LambdaLR

from gossamer import topology
from gossamer._common import checkpoint_file
from gossamer.errors import DiskError, DivergenceError, GossamerError
from gossamer.optim import DSGD, Checkpoints, DSGDm, MomentumTracking, checkpointing
from gossamer.optim.checkpointing import generator_states, restore_generators
from tests.optim.sites import Site
from tests.optim.tasks import flat

ALONE = topology.complete(1)


def rounds(directory: Path, name: str = "0") -> list[int]:
    return sorted(int(p.stem.split("-")[1]) for p in (directory / f"node-{name}").glob("*.ckpt"))


def test_a_restart_ends_with_the_same_bits(tmp_path: Path) -> None:
    whole = Site(tmp_path / "whole", ALONE).train(11)
    Site(tmp_path / "half", ALONE).train(8)
    torch.manual_seed(5)
    again = Site(tmp_path / "half", ALONE)
    assert torch.equal(again.train(11), whole)
    assert rounds(tmp_path / "half") == [9, 11]


def test_all_generators_are_brought_back() -> None:
    def draw() -> list[Any]:
        return [torch.rand(3).tolist(), random.random(), random.gauss(0, 1), np.random.rand(3).tolist()]  # noqa: NPY002

    random.gauss(0, 1)
    np.random.randn()  # noqa: NPY002
    states = generator_states()
    first = draw()
    assert draw() != first
    restore_generators(states)
    assert draw() == first


def test_a_damaged_file_is_passed_over(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    whole = Site(tmp_path, ALONE).train(8)
    newest = tmp_path / "node-0" / "round-000000008.ckpt"
    content = bytearray(newest.read_bytes())
    content[len(content) // 2] ^= 1
    newest.write_bytes(content)
    site = Site(tmp_path, ALONE)
    assert site.saver.resume() == 6
    assert not newest.exists(), "it will be written again"
    assert newest.with_name("round-000000008.ckpt.damaged").read_bytes() == content, "it is set aside, not deleted"
    assert torch.equal(site.train(8), whole)
    assert f"{newest} is damaged" in caplog.text


def test_a_file_that_cannot_be_read_now_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Site(tmp_path, ALONE).train(8)
    before = {path: path.read_bytes() for path in (tmp_path / "node-0").iterdir()}

    def fail(*_: Any) -> Any:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as broken:
        broken.setattr(Path, "open", fail)
        with pytest.raises(GossamerError, match=r"Cannot read the checkpoint .*: Input/output error; it is left"):
            Site(tmp_path, ALONE).saver.resume()
    with monkeypatch.context() as broken:
        broken.setattr(Path, "iterdir", fail)
        with pytest.raises(GossamerError, match=r"Cannot look for checkpoints in .*: Input/output error"):
            Site(tmp_path, ALONE).saver.resume()
    assert {path: path.read_bytes() for path in (tmp_path / "node-0").iterdir()} == before
    assert Site(tmp_path, ALONE).saver.resume() == 8


def test_files_of_a_gpu_are_read_without_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(torch.serialization, "location_tag", lambda storage: "cuda:0")
        whole = Site(tmp_path, ALONE).train(6)
    site = Site(tmp_path, ALONE)
    assert site.saver.resume() == 6
    assert torch.equal(site.result(), whole)


def test_numpys_numbers_are_saved_as_pythons(tmp_path: Path) -> None:
    def train(directory: Path, total: int) -> Tensor:
        model = nn.Linear(2, 1)
        optimizer = DSGDm(model.parameters(), lr=0.1, momentum=np.float64(0.5), weight_decay=np.float32(0.25))
        scheduler = LambdaLR(optimizer, lambda r: 0.5 * (1 + np.cos(r / 10)))
        saver = Checkpoints(directory, model, optimizer, every=2, extra={"scheduler": scheduler})
        for _ in saver.rounds(total):
            optimizer.zero_grad()
            model(torch.ones(1, 2)).sum().backward()
            optimizer.step()
            scheduler.step()
        return flat(model)

    torch.manual_seed(0)
    whole = train(tmp_path / "whole", 9)
    torch.manual_seed(0)
    train(tmp_path / "half", 5)
    assert torch.equal(train(tmp_path / "half", 9), whole)


class Counting:
    """A data loader that tells its position by an object."""

    def state_dict(self) -> dict[str, Any]:
        return {"at": [3, np.arange(3)]}

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


def test_what_could_not_be_read_back_is_not_written(tmp_path: Path) -> None:
    model = nn.Linear(2, 2)
    saver = Checkpoints(tmp_path, model, DSGD(model.parameters(), lr=0.1), extra={"loader": Counting()})
    with pytest.raises(GossamerError, match=r"^extra\['loader'\]\['at'\]\[1\] is a numpy.ndarray, which a checkpoint"):
        saver.resume()
    assert not list(tmp_path.rglob("*.*"))


def test_what_a_killed_process_had_begun_is_cleared_away(tmp_path: Path) -> None:
    Site(tmp_path, ALONE).train(3)
    begun = tmp_path / "node-0" / ".round-000000006.ckpt.0123456789abcdef.tmp"
    others = [tmp_path / "node-0" / "notes.tmp", tmp_path / "node-1" / begun.name]
    others[1].parent.mkdir()
    for path in (begun, *others):
        path.write_bytes(b"half a checkpoint")
    assert Site(tmp_path, ALONE).saver.resume() == 3
    assert not begun.exists()
    assert all(path.exists() for path in others)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_saves_and_ends(tmp_path: Path, number: int, code: int, caplog: pytest.LogCaptureFixture) -> None:
    before = signal.getsignal(number)
    whole = Site(tmp_path / "whole", ALONE).train(9)

    def interrupt(r: int) -> None:
        if r == 4:
            os.kill(os.getpid(), number)

    with caplog.at_level(logging.WARNING), pytest.raises(SystemExit) as end:
        Site(tmp_path / "cut", ALONE).train(9, interrupt)
    assert end.value.code == code
    assert rounds(tmp_path / "cut") == [3, 5]
    assert "saved round 5" in caplog.text
    assert signal.getsignal(number) is before
    assert torch.equal(Site(tmp_path / "cut", ALONE).train(9), whole)


def test_the_checkpoint_of_another_method_model_or_node_is_refused(tmp_path: Path) -> None:
    Site(tmp_path, ALONE).train(3)
    with pytest.raises(GossamerError, match="belongs to another run: its method is 'Momentum Tracking'"):
        Site(tmp_path, ALONE, DSGD).saver.resume()
    model = nn.Linear(2, 2)
    optimizer = MomentumTracking(model.parameters(), lr=0.1)
    with pytest.raises(GossamerError, match="belongs to another model"):
        Checkpoints(tmp_path, model, optimizer).resume()
    (tmp_path / "node-0").rename(tmp_path / "node-oslo")
    with pytest.raises(GossamerError, match="its node is '0', this run's is 'oslo'"):
        Site(tmp_path, ALONE, name="oslo").saver.resume()


def test_what_was_not_saved_cannot_be_loaded(tmp_path: Path) -> None:
    model = nn.Linear(2, 2)
    optimizer = MomentumTracking(model.parameters(), lr=0.1)
    Checkpoints(tmp_path, model, optimizer).resume()
    with pytest.raises(GossamerError, match=r"holds nothing for extra\['batches'\]"):
        Checkpoints(tmp_path, model, optimizer, extra={"batches": torch.Generator()}).resume()


def test_a_loop_of_another_shape(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)
    whole = Site(tmp_path / "whole", ALONE).train(4)
    site = Site(tmp_path, ALONE)
    for _ in range(site.saver.resume(), 4):
        site.backward()
        site.optimizer.step()
        site.scheduler.step()
        site.saver.step()
    assert signal.getsignal(signal.SIGTERM) != before
    site.saver.close()
    assert signal.getsignal(signal.SIGTERM) == before
    assert rounds(tmp_path) == [0, 3]
    assert torch.equal(site.result(), whole)


def test_a_signal_in_the_last_round_is_obeyed_when_all_is_saved(tmp_path: Path) -> None:
    site = Site(tmp_path, ALONE)
    made = []

    def interrupt(r: int) -> None:
        made.append(r)
        if r == 3:
            # As if the nodes were many and word of it had no time to reach them all.
            site.optimizer.network.messenger.stop = 9
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        site.train(4, interrupt)
    assert made == [0, 1, 2, 3]
    assert rounds(tmp_path) == [3, 4]


def test_a_signal_is_obeyed_when_the_loop_is_left(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGINT)
    site = Site(tmp_path, ALONE)

    def leave() -> None:
        for r in site.saver.rounds(9):
            site.backward()
            site.optimizer.step()
            if r == 2:
                os.kill(os.getpid(), signal.SIGINT)
                break
        time.sleep(20)

    with pytest.raises(KeyboardInterrupt):
        leave()
    assert signal.getsignal(signal.SIGINT) is before
    site.saver.close()  # not a second time


def test_a_round_without_a_step_is_named(tmp_path: Path) -> None:
    site = Site(tmp_path, ALONE)
    with pytest.raises(GossamerError, match=r"Round 0 must make one .*, but it made 0"):
        list(site.saver.rounds(3))


def test_wrong_arguments_are_named(tmp_path: Path) -> None:
    model = nn.Linear(2, 2)
    optimizer = MomentumTracking(model.parameters(), lr=0.1)
    with pytest.raises(GossamerError, match="at least 1, but every is 0"):
        Checkpoints(tmp_path, model, optimizer, every=0)
    with pytest.raises(GossamerError, match=r"extra\['epoch'\] is a int"):
        Checkpoints(tmp_path, model, optimizer, extra={"epoch": 3})  # type: ignore[dict-item]
    with pytest.raises(GossamerError, match=r"Call resume\(\) before the first step"):
        Checkpoints(tmp_path, model, optimizer).step()
    with pytest.raises(GossamerError, match=r"Call resume\(\) before the first save"):
        Checkpoints(tmp_path, model, optimizer).save()
    assert not list(tmp_path.iterdir())


def test_a_name_may_hold_anything(tmp_path: Path) -> None:
    Site(tmp_path, ALONE, name="../São Paulo/1").train(3)
    assert [p.name for p in tmp_path.iterdir()] == ["node-..%2FS%C3%A3o Paulo%2F1"]
    assert Site(tmp_path, ALONE, name="../São Paulo/1").saver.resume() == 3


def test_a_store_that_outlives_restarts_is_pointed_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    Site(tmp_path, ALONE)
    assert caplog.text == ""
    monkeypatch.setenv("TORCHELASTIC_MAX_RESTARTS", "3")
    monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", "True")
    monkeypatch.setenv("RANK", "0")
    Site(tmp_path, ALONE)
    assert "set TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1" in caplog.text


@pytest.mark.parametrize("what", ["parameter", "momentum", "buffer"])
def test_a_state_that_is_not_finite_is_never_written(
    tmp_path: Path, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    site = Site(tmp_path, ALONE, DSGDm)
    site.train(3)
    kept = {path.name: path.read_bytes() for path in (tmp_path / "node-0").iterdir()}
    with torch.no_grad():
        if what == "parameter":
            next(site.model.parameters())[0, 0] = torch.inf
        elif what == "momentum":
            next(iter(site.optimizer.state.values()))["u"].view(-1)[0] = -torch.inf
        else:
            next(site.model.buffers())[0] = torch.nan
    with pytest.raises(DivergenceError, match=r"the model of node 0 is (inf|-inf|nan) in round 3"):
        site.saver.save()
    assert "so no checkpoint is written: the last one is the one to go on from" in caplog.text
    assert {path.name: path.read_bytes() for path in (tmp_path / "node-0").iterdir()} == kept


def test_a_buffer_may_be_infinite_on_purpose(tmp_path: Path) -> None:
    model = nn.Linear(2, 1)
    model.register_buffer("mask", torch.full((2, 2), -torch.inf).triu(1))
    saver = Checkpoints(tmp_path, model, DSGD(model.parameters(), lr=0.1), every=1)
    assert saver.resume() == 0
    assert rounds(tmp_path) == [0]


def test_a_directory_that_is_removed_meanwhile_stops_the_run_and_is_not_made_again(tmp_path: Path) -> None:
    def remove(r: int) -> None:
        if r == 4:
            shutil.rmtree(tmp_path / "run")

    with pytest.raises(DiskError, match="node-0 has been removed while the run was using it; put it back if you can"):
        Site(tmp_path / "run", ALONE).train(9, remove)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("lacking", "reason"),
    [("generators", "it holds no generators"), ("nodes", "it does not say which nodes it belongs to")],
)
def test_a_file_with_a_digest_that_lacks_something_is_passed_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, lacking: str, reason: str
) -> None:
    whole = Site(tmp_path, ALONE).train(8)
    saved = checkpoint_file.read(checkpoint_file.path_of(tmp_path / "node-0", 8))
    saved["content"].pop(lacking, None)
    saved["settings"].pop(lacking, None)
    checkpoint_file.write(tmp_path / "node-0", 8, saved["settings"], saved["content"])
    site = Site(tmp_path, ALONE)
    assert torch.equal(site.train(8), whole)
    assert f"is damaged ({reason}): it is passed over and kept as round-000000008.ckpt.damaged" in caplog.text


@pytest.mark.parametrize("part", ["model", "optimizer", "extra"])
def test_a_file_with_a_digest_that_holds_something_else_is_refused(tmp_path: Path, part: str) -> None:
    Site(tmp_path, ALONE).train(3)
    path = checkpoint_file.path_of(tmp_path / "node-0", 3)
    saved = checkpoint_file.read(path)
    saved["content"][part] = {}
    checkpoint_file.write(tmp_path / "node-0", 3, saved["settings"], saved["content"])
    before = path.read_bytes()
    with pytest.raises(GossamerError, match=r"^The checkpoint .*round-000000003.ckpt (belongs|holds|does not hold)"):
        Site(tmp_path, ALONE).saver.resume()
    assert path.read_bytes() == before


def test_a_key_that_holds_no_number_deletes_no_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Pair:
        def size(self) -> int:
            return 2

        def rank(self) -> int:
            return 0

    site, board = Site(tmp_path, ALONE, every=1), HashStore()
    assert site.saver.resume() == 0
    monkeypatch.setattr(checkpointing, "meeting_board", lambda group: board)
    monkeypatch.setattr(site.optimizer.network, "group", Pair())
    for round, told in enumerate(["", "soon", "0x10", "9" * 5000, "1e9"], start=1):
        board.set("saved/1", told)
        assert site.saver._confirm(round) == -1, told
        assert board.get("saved/0") == str(round).encode()
    board.set("saved/1", "3")
    assert site.saver._confirm(6) == 3
