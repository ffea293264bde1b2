import math

import numpy as np
import pytest
import torch

from gossamer.engine.schedule import Constant, Cosine, StepDecay, StepSize, WarmUp, schedule_of, step_size_of
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


@pytest.mark.parametrize("rounds", [1, 9, 10, 15, 19, 29, 104])
def test_by_default_there_are_at_most_ten_evaluations(rounds):
    schedule = schedule_of(digit_nodes(), 16, 0.1, rounds=rounds)
    evaluated = [r for r in range(1, rounds + 1) if schedule.is_evaluated(r)]
    assert min(rounds, 5) <= len(evaluated) <= 10
    assert evaluated[-1] == rounds


@pytest.mark.parametrize(
    ("changes", "rounds", "evaluated"),
    [
        ({"rounds": 3}, 3, [0, 1, 2, 3]),
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
