import json
import os
import shutil
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numba
import numpy as np
import pytest
import torch
from torch import nn

from gossamer import data
from gossamer._common import checkpoint_file as checkpoint_files
from gossamer.engine import Cosine, StepSize
from gossamer.engine.checkpoints import KEPT, CheckpointDirectory
from gossamer.engine.gradients.compiled import VERSION
from gossamer.engine.gradients.compiled.vectors import LANES
from gossamer.errors import DiskError, GossamerError, InputError
from tests.engine.digits_nodes import digit_nodes, run_digits, same_bits
from tests.engine.test_simulate import WithBatchNorm, WithDropout
from tests.processes import start


@pytest.mark.usefixtures("each_form")
@pytest.mark.parametrize("method", ["dsgd", "momentum-tracking", "qg-dsgdm", "gtadam", "all-reduce-sgdm"])
def test_a_resumed_run_ends_with_the_same_bits(method, tmp_path):
    whole = run_digits(method=method, rounds=8)
    run_digits(method=method, rounds=5, checkpoint=tmp_path, workers=1)
    resumed = run_digits(method=method, rounds=8, checkpoint=tmp_path, workers=2)
    assert same_bits(whole, resumed)
    assert resumed.simulation.round == 8


def test_a_checkpoint_of_the_other_form_is_continued_but_not_to_the_same_bits(tmp_path, monkeypatch, caplog):
    run_digits(rounds=5, checkpoint=tmp_path)
    assert not caplog.text
    monkeypatch.setattr(numba.config, "DISABLE_JIT", 1)
    resumed = run_digits(rounds=8, checkpoint=tmp_path)
    assert resumed.simulation.round == 8
    form = f"compiled {VERSION}, {LANES[np.dtype(np.float32)]} lanes"
    assert f"before round 5 were computed by {form}, those from here on by autograd" in caplog.text
    assert "not to the same bits" in caplog.text


@pytest.mark.parametrize("model", [WithDropout, WithBatchNorm])
def test_generators_and_buffers_are_resumed_too(model, tmp_path):
    nodes = digit_nodes(augmented=True, equal_sizes=False)
    whole = run_digits(model=model, data=nodes, rounds=8)
    run_digits(model=model, data=nodes, rounds=5, checkpoint=tmp_path)
    resumed = run_digits(model=model, data=nodes, rounds=8, checkpoint=tmp_path)
    assert same_bits(whole, resumed)
    for a, b in zip(whole.models[1].buffers(), resumed.models[1].buffers(), strict=True):
        assert torch.equal(a, b)


def test_the_history_is_resumed_too(tmp_path):
    def figures(run):
        timing = ("seconds", "samples_per_second")
        return [{k: v for k, v in row.items() if k not in timing} for row in run.history]

    whole = run_digits(rounds=8, evaluate_every=0.2)
    assert whole.history["round"] == [0, 2, 4, 6, 8]
    run_digits(rounds=4, evaluate_every=0.2, checkpoint=tmp_path)
    resumed = run_digits(rounds=8, evaluate_every=0.2, checkpoint=tmp_path)
    assert resumed.history["round"] == [0, 2, 4, 6, 8]
    assert figures(resumed)[-2:] == figures(whole)[-2:]


def _run(directory: Path, without_kernels: int) -> None:
    numba.config.DISABLE_JIT = without_kernels
    run_digits(rounds=60, checkpoint=directory, checkpoint_every=0.2, evaluate_every=1)


@pytest.mark.usefixtures("each_form")
@pytest.mark.timeout(400)
@pytest.mark.parametrize("times", [1, pytest.param(5, marks=pytest.mark.slow)])
def test_a_run_survives_kill_9_at_any_moment(tmp_path, times):
    for kills in range(times):
        child = start(tmp_path.with_suffix(".out"), _run, tmp_path, numba.config.DISABLE_JIT)
        seen = newest(tmp_path)
        while newest(tmp_path) == seen and child.is_alive():
            time.sleep(0.003)
        time.sleep(0.004 * kills)
        child.kill()
        child.join()
    assert 0 < newest(tmp_path) < 60
    options = {"rounds": 60, "evaluate_every": 1}
    assert same_bits(run_digits(**options), run_digits(**options, checkpoint=tmp_path))


def newest(directory: Path) -> int:
    return max((int(p.stem.split("-")[1]) for p in directory.glob("round-*.ckpt")), default=0)


@pytest.mark.parametrize("damage", ["cut", "flip", "empty", "text"])
def test_a_damaged_checkpoint_is_passed_over(tmp_path, damage, caplog):
    whole = run_digits(rounds=8)
    run_digits(rounds=6, checkpoint=tmp_path, checkpoint_every=0.5)
    files = sorted(tmp_path.glob("*.ckpt"))
    assert len(files) == KEPT
    content = bytearray(files[-1].read_bytes())
    content[len(content) // 2] ^= 1
    files[-1].write_bytes({"cut": content[:-500], "flip": content, "empty": b"", "text": b"hello"}[damage])
    left = tmp_path / ".round-000000007.ckpt.0123abcd.tmp"
    left.write_bytes(b"half of a checkpoint")
    assert same_bits(whole, run_digits(rounds=8, checkpoint=tmp_path))
    (told,) = caplog.messages
    assert told.startswith(f"The checkpoint {files[-1]} is damaged (")
    assert told.endswith(f") and is kept as {files[-1].name}.damaged; the run continues from round 4.")
    assert files[-1].with_name(f"{files[-1].name}.damaged").exists()
    assert not left.exists()


def test_when_all_are_damaged_the_run_starts_again(tmp_path, caplog):
    run_digits(rounds=4, checkpoint=tmp_path, checkpoint_every=1e-9)
    for file in tmp_path.glob("*.ckpt"):
        file.write_bytes(b"")
    assert same_bits(run_digits(rounds=4), run_digits(rounds=4, checkpoint=tmp_path))
    assert len(caplog.messages) == KEPT
    assert all(told.endswith(".ckpt.damaged; the run starts again.") for told in caplog.messages)


@pytest.mark.parametrize(("foreign", "damaged"), [(5, []), (2, []), (3, [4, 2])])
def test_a_directory_with_a_checkpoint_of_another_run_is_refused_and_left_as_it_is(tmp_path, caplog, foreign, damaged):
    run_digits(rounds=4, checkpoint=tmp_path, checkpoint_every=1e-9)
    run_digits(rounds=1, checkpoint=tmp_path / "other", seed=1)
    theirs = checkpoint_files.path_of(tmp_path, foreign)
    checkpoint_files.path_of(tmp_path / "other", 1).replace(theirs)
    (tmp_path / "other").rmdir()
    for round in damaged:
        checkpoint_files.path_of(tmp_path, round).write_bytes(b"")
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    with pytest.raises(InputError, match=f"{theirs.name} belongs to another run: its seed is 1, this run's is 0; ch"):
        run_digits(rounds=8, checkpoint=tmp_path)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before
    assert not caplog.messages


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"method": "dsgd"}, "method"),
        ({"graph": "complete"}, "graph"),
        ({"seed": 1}, "seed"),
        ({"lr": 0.1}, "lr"),
        ({"lr": Cosine(0.05)}, "lr"),
        ({"batch_size": 8}, "batch_size"),
        ({"weight_decay": 0.1}, "weight_decay"),
        ({"decoupled": True}, "decoupled"),
        ({"nonfinite": "skip"}, "nonfinite"),
        ({"model": WithBatchNorm}, "model"),
        ({"data": digit_nodes(k=4)}, "partition"),
    ],
)
def test_the_checkpoint_of_another_run_is_refused(tmp_path, changes, what):
    run_digits(checkpoint=tmp_path)
    with pytest.raises(GossamerError, match=f"belongs to another run: its {what} is"):
        run_digits(checkpoint=tmp_path, **changes)


def test_a_setting_that_another_run_does_not_have_is_said_to_be_missing(tmp_path):
    run_digits(checkpoint=tmp_path, clip=1.0)
    with pytest.raises(GossamerError, match=r"its clip is 1\.0, this run's is not set; choose"):
        run_digits(checkpoint=tmp_path)


class Nudge(nn.Module):
    """Says of itself where it lies, as a careless module may."""

    def extra_repr(self):
        return repr(object())

    def forward(self, x):
        return x


def layers(activation=nn.ReLU, rate=0.25, stride=1, shift=0.0, frozen=0.0):
    """A small model; the changes keep the shapes of all that is trained."""
    first = nn.Conv2d(1, 2, 1, stride=stride), nn.AdaptiveAvgPool2d(4), nn.Flatten(), activation()
    model = nn.Sequential(*first, nn.Dropout(rate), Nudge(), nn.BatchNorm1d(32), nn.Linear(32, 10))
    model[0].bias.requires_grad_(False).fill_(frozen)
    model[-2].running_mean.add_(shift)
    return model


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"activation": nn.Tanh}, "layers"),
        ({"rate": 0.5}, "layers"),
        ({"stride": 2}, "layers"),
        ({"shift": 1.0}, "start"),
        ({"frozen": 1.0}, "start"),
    ],
)
def test_another_model_with_the_same_parameters_is_refused(tmp_path, changes, what):
    run_digits(model=layers, checkpoint=tmp_path, rounds=2, workers=1)
    assert run_digits(model=layers, checkpoint=tmp_path, rounds=3, workers=2).simulation.round == 3
    with pytest.raises(GossamerError, match=f"belongs to another run: its {what} is"):
        run_digits(model=lambda: layers(**changes), checkpoint=tmp_path, rounds=4)


def test_a_module_that_starts_elsewhere_is_another_run(tmp_path):
    first, second = WithBatchNorm(), WithBatchNorm()
    run_digits(model=first, checkpoint=tmp_path, rounds=2)
    assert run_digits(model=first, checkpoint=tmp_path, rounds=3).simulation.round == 3
    with pytest.raises(GossamerError, match="belongs to another run: its start is"):
        run_digits(model=second, checkpoint=tmp_path, rounds=3)


def test_a_start_does_not_depend_on_the_threads(tmp_path):
    def factory():
        model = nn.Sequential(nn.Flatten(), nn.Linear(64, 500), nn.ReLU(), nn.Linear(500, 400), nn.Linear(400, 10))
        nn.init.orthogonal_(model[3].weight)
        return model

    threads = torch.get_num_threads()
    try:
        for rounds in (1, 2):
            torch.set_num_threads(rounds)
            assert run_digits(model=factory, checkpoint=tmp_path, rounds=rounds).simulation.round == rounds
            assert torch.get_num_threads() == rounds
    finally:
        torch.set_num_threads(threads)


def stop_at(round):
    """A callback that ends a run when this round is evaluated."""

    def stop(row):
        if row["round"] == round:
            raise InterruptedError

    return stop


@pytest.mark.parametrize("validated", [True, False], ids=["with validation set", "without"])
def test_a_checkpoint_from_the_middle_of_a_longer_run_is_evaluated(tmp_path, validated):
    full = digit_nodes().dataset
    nodes = full.split(data.partition.iid(nodes=4), holdout=0.1 if validated else 0)

    def figures(run):
        unknown = ("seconds", "samples_per_second", "train_loss", "gradient_norm")
        return {k: v for k, v in run.history.last.items() if k not in unknown}

    settings = {"data": nodes, "evaluate_every": 4 / nodes.rounds_per_epoch(16)}
    often = {"checkpoint": tmp_path, "checkpoint_every": 1e-9}
    with pytest.raises(InterruptedError):
        run_digits(rounds=20, callbacks=[stop_at(8)], **settings, **often)
    seen = []
    shorter = run_digits(rounds=7, callbacks=[seen.append], **settings, **often)
    assert shorter.history["round"] == [0, 4, 7]
    assert shorter.history.last["gradient_norm"] is None
    assert shorter.history.last["train_loss"] > 0
    assert seen == [shorter.history.last]
    assert figures(shorter) == figures(run_digits(rounds=7, **settings))
    assert run_digits(rounds=7, callbacks=[seen.append], **settings, **often).history.rows == shorter.history.rows
    assert len(seen) == 1


def test_a_row_of_the_last_round_is_completed(tmp_path):
    every = {"evaluate_every": 2 / digit_nodes().rounds_per_epoch(16), "checkpoint": tmp_path}
    with pytest.raises(InterruptedError):
        run_digits(rounds=20, callbacks=[stop_at(6)], checkpoint_every=every["evaluate_every"], **every)
    run = run_digits(rounds=4, **every)
    whole = run_digits(rounds=4, evaluate_every=every["evaluate_every"])
    assert run.history["round"] == [0, 2, 4]
    for name in ("validation_accuracy", "train_loss", "gradient_norm", "loss"):
        assert run.history.last[name] == whole.history.last[name]


def test_an_unwritable_directory_is_named(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(GossamerError, match="Cannot write"):
        run_digits(checkpoint=tmp_path / "file")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_keeps_everything(tmp_path, number):
    rounds: list[int] = []

    def interrupt(row):
        rounds.append(row["round"])
        if row["round"] == 4:
            os.kill(os.getpid(), number)

    with pytest.raises(KeyboardInterrupt):
        run_digits(rounds=40, checkpoint=tmp_path, checkpoint_every=100, evaluate_every=0.2, callbacks=[interrupt])
    assert newest(tmp_path) == rounds[-1] == 4
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert same_bits(run_digits(rounds=8), run_digits(rounds=8, checkpoint=tmp_path))


def test_an_ignored_interrupt_stays_ignored_and_other_threads_are_left_alone():
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        run = run_digits(rounds=3, callbacks=[lambda row: os.kill(os.getpid(), signal.SIGINT)])
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    assert run.simulation.round == 3
    with ThreadPoolExecutor(1) as pool:
        assert same_bits(run, pool.submit(run_digits, rounds=3).result())


def test_checkpoints_hold_no_pickled_objects(tmp_path):
    run_digits(checkpoint=tmp_path)
    (newest_file,) = sorted(tmp_path.glob("*.ckpt"))[-1:]
    saved = torch.load(newest_file, weights_only=True)
    assert saved["round"] == 6
    assert json.loads(saved["content"]["history"])


def test_a_checkpoint_beyond_the_end_is_refused(tmp_path):
    run_digits(rounds=6, checkpoint=tmp_path)
    with pytest.raises(GossamerError, match=r"after 6 rounds, but this run has 4, .* ask for at least 6 rounds"):
        run_digits(rounds=4, checkpoint=tmp_path)
    assert run_digits(rounds=6, checkpoint=tmp_path).simulation.round == 6


def test_functions_are_told_apart_by_their_step_sizes(tmp_path):
    run_digits(lr=lambda r: 0.1 / (r + 1), checkpoint=tmp_path)
    assert run_digits(lr=lambda r: 0.1 / (1 + r), checkpoint=tmp_path).simulation.round == 6
    with pytest.raises(GossamerError, match=r"belongs to another run: its step_sizes is '0\.1 to 0\.0166667, "):
        run_digits(lr=lambda r: 0.1 / (r + 1) if r != 3 else 0.0, checkpoint=tmp_path)


class Halving(StepSize):
    def at(self, epoch, epochs):
        return 0.1 * 0.5 ** int(epoch)


def test_a_schedule_of_ones_own_is_resumed(tmp_path):
    run_digits(lr=Halving(), checkpoint=tmp_path)
    assert run_digits(lr=Halving(), checkpoint=tmp_path).simulation.round == 6


def test_other_data_of_the_same_name_are_refused(tmp_path):
    def nodes(seed):
        draw = torch.Generator().manual_seed(seed)
        inputs, targets = torch.rand(80, 1, 8, 8, generator=draw), torch.arange(80) % 4
        return data.Dataset.from_tensors(inputs, targets, test=(inputs, targets)).split(data.partition.iid(nodes=4))

    run_digits(data=nodes(0), checkpoint=tmp_path)
    assert run_digits(data=nodes(0), checkpoint=tmp_path).simulation.round == 6
    with pytest.raises(GossamerError, match="belongs to another run: its data is"):
        run_digits(data=nodes(1), checkpoint=tmp_path)


NEWER = ("data", "step_sizes", "layers", "start", "nonfinite")


@pytest.mark.parametrize("older", [{}, {"architecture": "layers 0123456789abcdef"}])
def test_a_checkpoint_of_an_earlier_version_is_continued(tmp_path, older):
    """The first ones recorded less; later ones described the layers of a model after they had reordered them."""
    run_digits(rounds=5, checkpoint=tmp_path)
    for round in checkpoint_files.rounds_in(tmp_path):
        saved = checkpoint_files.read(checkpoint_files.path_of(tmp_path, round))
        settings = {k: v for k, v in saved["settings"].items() if k not in NEWER}
        del saved["content"]["simulation"]["skipped"]
        checkpoint_files.write(tmp_path, round, {**settings, **older}, saved["content"])
    resumed = run_digits(rounds=8, checkpoint=tmp_path)
    assert same_bits(run_digits(rounds=8), resumed)
    assert resumed.simulation.skipped == [0] * 4


def broken(outputs, targets):
    """A loss that is no number for the batches that begin with an even digit."""
    loss = nn.functional.cross_entropy(outputs, targets)
    return loss * torch.nan if len(targets) == 16 and targets[0] % 2 == 0 else loss


def test_a_run_that_skips_is_resumed_with_its_counts(tmp_path):
    options = {"loss": broken, "nonfinite": "skip"}
    whole = run_digits(rounds=8, **options)
    first = run_digits(rounds=5, checkpoint=tmp_path, **options)
    resumed = run_digits(rounds=8, checkpoint=tmp_path, **options)
    assert same_bits(whole, resumed)
    assert resumed.simulation.skipped == whole.simulation.skipped
    assert 0 < sum(first.simulation.skipped) < sum(whole.simulation.skipped)


@pytest.mark.parametrize("what", ["x", "y", "buffer"])
def test_a_state_that_is_not_finite_is_never_written(tmp_path, what, caplog):
    """Neither over the last finite one nor beside it: of two files that are kept the older one goes."""
    saved = run_digits(checkpoint=tmp_path, model=WithBatchNorm, rounds=3, checkpoint_every=0.01)
    simulation = saved.simulation
    kept = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    store = CheckpointDirectory(tmp_path, 1, {})
    with torch.no_grad():
        if what == "buffer":
            next(b for b in simulation.models.modules[1].buffers() if b.is_floating_point()).fill_(torch.nan)
        else:
            (simulation.models.x if what == "x" else simulation.state.y)[1, 5] = torch.inf
    simulation.round = 4
    store.save(simulation, saved.history)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == kept
    assert "after 4 rounds holds numbers that are not finite, so no checkpoint of it is written" in caplog.text


def test_a_directory_that_is_removed_meanwhile_stops_the_run_and_is_not_made_again(tmp_path):
    def remove(row):
        if row["round"] == 2:
            shutil.rmtree(tmp_path / "run")

    with pytest.raises(DiskError, match="run has been removed while the run was using it; put it back if you can"):
        run_digits(rounds=6, checkpoint=tmp_path / "run", checkpoint_every=0.01, evaluations=3, callbacks=[remove])
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("lacking", ["simulation", "history", "x", "batches"])
def test_a_file_with_a_digest_that_lacks_something_is_refused(tmp_path, lacking):
    run_digits(rounds=3, checkpoint=tmp_path)
    path = checkpoint_files.path_of(tmp_path, 3)
    saved = checkpoint_files.read(path)
    for place in (saved["content"], saved["content"]["simulation"]):
        place.pop(lacking, None)
    checkpoint_files.write(tmp_path, 3, saved["settings"], saved["content"])
    with pytest.raises(InputError, match=rf"does not hold what this run needs \(KeyError: '{lacking}'\)"):
        run_digits(rounds=6, checkpoint=tmp_path)
