import math
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gossamer import models
from gossamer.data import Dataset, NodeBatches, NodeData, partition
from gossamer.engine.node_models import make_model
from gossamer.engine.schedule import (
    Constant,
    Cosine,
    Schedule,
    StepDecay,
    StepSize,
    WarmUp,
    schedule_of,
    step_size_of,
)
from gossamer.errors import GossamerError
from gossamer.experiments.experiment import Experiment
from gossamer.experiments.training import length_of
from tests.engine.digits_nodes import digit_nodes, run_digits


def test_a_number_is_constant():
    step = step_size_of(0.1, rounds_per_epoch=10, rounds=100)
    assert [step(0), step(99)] == [0.1, 0.1]


def test_a_function_of_the_round_is_taken_as_it_is():
    assert step_size_of(lambda r: 1 / (r + 1), 10, 100)(3) == 0.25


def test_step_decay_in_epochs():
    step = step_size_of(StepDecay(1.0, at_epochs=(5, 7.5), factor=0.1), rounds_per_epoch=10, rounds=100)
    assert [step(49), step(50), step(74), step(75)] == pytest.approx([1, 0.1, 0.1, 0.01])


def test_cosine_from_lr_to_final():
    step = step_size_of(Cosine(1.0, final=0.2), rounds_per_epoch=10, rounds=100)
    assert step(0) == 1.0
    assert step(50) == pytest.approx(0.6)
    assert step(100) == pytest.approx(0.2)
    assert step(25) == pytest.approx(0.2 + 0.8 * (1 + math.cos(math.pi / 4)) / 2)


def test_warm_up_then_another():
    step = step_size_of(WarmUp(Constant(1.0), epochs=2, start=0.5), rounds_per_epoch=10, rounds=100)
    assert [step(0), step(10), step(20), step(60)] == pytest.approx([0.5, 0.75, 1, 1])


@pytest.mark.parametrize("lr", [-0.1, math.nan, math.inf, "fast", True])
def test_impossible_step_sizes_are_refused(lr):
    with pytest.raises(GossamerError, match="step size must be a finite number"):
        step_size_of(lr, 10, 100)


def test_impossible_schedules_are_refused():
    with pytest.raises(GossamerError, match="factor"):
        StepDecay(0.1, at_epochs=(1,), factor=2)
    for epochs in (0, "2"):
        with pytest.raises(GossamerError, match=f"warm-up lasts .*, but epochs is {epochs!r}"):
            WarmUp(Constant(0.1), epochs=epochs)
    with pytest.raises(GossamerError, match=r"warm-up starts from a fraction .*, but start is 2"):
        WarmUp(Constant(0.1), epochs=3, start=2)
    with pytest.raises(GossamerError, match="leads to a schedule such as"):
        WarmUp(0.1, epochs=2)
    for at_epochs in (1, "12", (1, math.nan), ("1",)):
        with pytest.raises(GossamerError, match=r"as in at_epochs=\(500, 750\)"):
            StepDecay(0.1, at_epochs=at_epochs)


class Sinking(StepSize):
    def at(self, epoch, epochs):
        return 0.1 - epoch


def test_what_a_schedule_or_a_function_answers_is_checked():
    step = step_size_of(Sinking(), rounds_per_epoch=10, rounds=100)
    assert step(0) == 0.1
    with pytest.raises(GossamerError, match=r"step size of round 2 is -0\.1"):
        step(2)
    for value in (np.float32(0.5), torch.tensor(0.5), 0.5):
        number = step_size_of(lambda r, value=value: value, 10, 100)(0)
        assert type(number) is float
        assert number == 0.5


def test_rounds_per_epoch_are_those_of_the_mean_node():
    nodes = digit_nodes(equal_sizes=False)
    assert nodes.rounds_per_epoch(16) == -(-sum(nodes.sizes) // (4 * 16))


def split(samples: int, tests: int, nodes: int, recipe=partition.iid, holdout=0.1) -> NodeData:
    """Samples of one number each, half of them of either class."""
    targets = torch.arange(samples) % 2
    test = (torch.zeros(tests, 1), torch.arange(tests) % 2)
    return Dataset.from_tensors(torch.zeros(samples, 1), targets, test=test, classes=2).split(recipe(nodes), holdout)


def evaluated(schedule: Schedule) -> list[int]:
    return [r for r in range(schedule.rounds + 1) if schedule.is_evaluated(r)]


def evaluation_passes(schedule: Schedule, nodes: NodeData) -> int:
    """The samples that go through a model in all evaluations."""
    last = len(nodes.test[1]) + len(nodes.validation[1])
    return (nodes.nodes + 1) * ((len(evaluated(schedule)) - 1) * schedule.test_samples + last)


@given(
    st.integers(60, 2000), st.integers(1, 3000), st.integers(1, 5), st.integers(1, 60), st.integers(1, 400),
    st.sampled_from([partition.iid, partial(partition.dirichlet, alpha=0.2, min_size=2)]), st.sampled_from([0.0, 0.1]),
)  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_by_default_a_fifth_of_the_forward_passes_are_evaluations(samples, tests, nodes, batch, rounds, recipe, held):
    data = split(samples, tests, nodes, recipe=recipe, holdout=held)
    schedule = schedule_of(data, batch, 0.1, rounds=rounds)
    batches = NodeBatches(data.partition.indices, batch)
    trained = sum(len(batches.next(node)) for _ in range(rounds) for node in range(nodes))
    spent = evaluation_passes(schedule, data)
    smallest = evaluated(schedule) == [0, rounds] and schedule.test_samples == min(tests, 500)
    assert spent <= (3 * trained + spent) / 5 or smallest
    assert min(tests, 500) <= schedule.test_samples <= tests
    assert len(evaluated(schedule)) <= 11
    assert {0, rounds} <= set(evaluated(schedule))


def test_evaluations_use_fewer_samples_before_they_become_rare():
    nodes = split(60_000, 10_000, 8)

    def chosen(rounds):
        schedule = schedule_of(nodes, 100, 0.1, rounds=rounds)
        return len(evaluated(schedule)), schedule.test_samples

    assert chosen(20) == (2, 500)  # the whole test set at the end is more than a fifth already
    assert chosen(280) == (6, 500)
    assert chosen(1360) == (11, 7398)
    assert chosen(2000) == (11, 10_000)


def test_what_is_asked_for_is_not_limited():
    nodes = split(600, 10_000, 2)
    for asked in ({"evaluations": 20}, {"evaluate_every": 1 / nodes.rounds_per_epoch(10)}):
        schedule = schedule_of(nodes, 10, 0.1, rounds=20, **asked)
        assert evaluated(schedule) == list(range(21))
        assert schedule.test_samples == 10_000


@pytest.fixture
def small_parts(monkeypatch):
    """Let a run of 40 rounds use 23 of the 60 test samples before its end."""
    monkeypatch.setattr("gossamer.engine.schedule.SMALLEST_PART", 20)


def test_rows_have_their_number_of_test_samples_and_the_last_one_has_all(small_parts):
    run = run_digits(rounds=40)
    assert run.history["round"] == list(range(0, 41, 4))
    assert run.history["test_samples"] == [23] * 10 + [60]
    start, asked = run.history.rows[0], run_digits(rounds=1, evaluations=1)
    part = digit_nodes().test_part(23, seed=0)
    with torch.no_grad():
        model = make_model(models.SmallCNN, digit_nodes(), seed=0).eval()
        output = model(digit_nodes().pipeline.batch(part[0], torch.arange(23)))
    assert start["accuracy"] == pytest.approx(float((output.argmax(1) == part[1]).double().mean()))
    assert asked.history["test_samples"] == [60, 60]


def test_a_run_that_was_stopped_uses_the_same_part(small_parts, tmp_path):
    def figures(run):
        return [{k: v for k, v in row.items() if k not in ("seconds", "samples_per_second")} for row in run.history]

    def stop(row):
        if row["round"] == 16:
            raise InterruptedError

    whole = run_digits(rounds=40)
    with pytest.raises(InterruptedError):
        run_digits(rounds=40, callbacks=[stop], checkpoint=tmp_path, checkpoint_every=1e-9)
    assert figures(run_digits(rounds=40, checkpoint=tmp_path)) == figures(whole)


def test_a_row_on_a_part_of_the_test_set_is_not_taken_for_the_last_one(small_parts, tmp_path):
    nodes = digit_nodes().dataset.split(partition.iid(nodes=4), holdout=0)

    def stop(row):
        if row["round"] == 16:
            raise InterruptedError

    options = {"data": nodes, "checkpoint": tmp_path}
    with pytest.raises(InterruptedError):
        run_digits(rounds=40, callbacks=[stop], checkpoint_every=4 / nodes.rounds_per_epoch(16), **options)
    shorter = run_digits(rounds=12, **options)
    assert shorter.history["round"] == [0, 4, 8, 12]
    assert shorter.history["test_samples"][-2:] == [shorter.history.rows[0]["test_samples"], 60]


@pytest.mark.parametrize(
    ("changes", "rounds", "evaluated"),
    [
        ({"rounds": 3}, 3, [0, 3]),
        ({"rounds": 36, "evaluations": 4}, 36, [0, 9, 18, 27, 36]),
        ({"rounds": 0, "epochs": 1.5, "evaluations": 2}, 18, [0, 9, 18]),
    ],
)
def test_an_experiment_is_evaluated_as_often_as_it_says(changes, rounds, evaluated):
    nodes = digit_nodes()
    batch_size = next(size for size in range(1, 100) if nodes.rounds_per_epoch(size) == 12)
    length = length_of(Experiment(nodes=4, batch_size=batch_size, **changes))
    schedule = schedule_of(nodes, batch_size, **length)
    assert schedule.rounds == rounds
    assert [r for r in range(rounds + 1) if schedule.is_evaluated(r)] == evaluated
    assert run_digits(batch_size=batch_size, **length).history["round"] == evaluated
