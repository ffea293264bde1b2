import pytest

from gossamer.engine.pace import pace_of
from gossamer.experiments.experiment import Experiment
from gossamer.experiments.timing import timing
from tests.engine.digits_nodes import digit_nodes, run_digits


def test_rounds_per_epoch_are_those_of_the_mean_node():
    nodes = digit_nodes(equal_sizes=False)
    assert nodes.rounds_per_epoch(16) == -(-sum(nodes.sizes) // (4 * 16))


@pytest.mark.parametrize("rounds", [1, 9, 10, 15, 19, 29, 104])
def test_by_default_there_are_at_most_ten_evaluations(rounds):
    pace = pace_of(digit_nodes(), 16, 0.1, rounds=rounds)
    evaluated = [r for r in range(1, rounds + 1) if pace.is_evaluated(r)]
    assert min(rounds, 5) <= len(evaluated) <= 10
    assert evaluated[-1] == rounds


@pytest.mark.parametrize("rounds", [3, 35, 104])
def test_the_simulator_evaluates_at_the_pace_of_an_experiment(rounds):
    """35 rounds, 12 to an epoch, 10 evaluations: 3.4999 or 3.5 rounds lie between two, as one divides."""
    nodes = digit_nodes()
    batch_size = next(size for size in range(1, 100) if nodes.rounds_per_epoch(size) == 12)
    times = timing(Experiment(nodes=4, rounds=rounds, batch_size=batch_size), nodes)
    pace = pace_of(nodes, batch_size, **times)
    run = run_digits(batch_size=batch_size, **times)
    assert run.history["round"] == [r for r in range(rounds + 1) if pace.is_evaluated(r)]
    assert pace.total == rounds
