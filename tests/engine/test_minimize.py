"""Running a method on a problem: what is recorded, and what is refused."""

import math

import pytest
import torch

from gossamer import DSGD, GossamerError, GradientTracking, MomentumTracking, minimize, topology
from gossamer.engine import Cosine, Trajectory
from gossamer.engine.minimize import CHUNK
from gossamer.methods import State
from gossamer.problems import Quadratic

RING = topology.ring(4)


def quadratic(sigma2=0.0):
    return Quadratic.synthetic(nodes=4, dim=3, zeta2=25.0, sigma2=sigma2)


def test_the_first_rounds_by_hand():
    problem, lr = quadratic(), 0.01
    seen = []
    run = minimize(problem, DSGD(), RING, lr=lr, rounds=3, on_round=lambda r, x, _: seen.append((r, x.clone())))
    w = torch.from_numpy(RING.at(0).dense())
    x = torch.ones(4, 3, dtype=torch.float64)
    for r in range(3):
        x = w @ (x - lr * problem.gradient(x))
        assert seen[r][0] == r
        assert torch.allclose(seen[r][1], x, rtol=0, atol=1e-14)
        assert float(run.squared_gradients[r + 1]) == pytest.approx(
            float(problem.mean_gradient(x.mean(0)).square().sum()), rel=1e-10
        )
    assert torch.allclose(run.x, x, rtol=0, atol=1e-14)
    assert len(seen) == 3
    assert len(run.squared_gradients) == 4
    assert run.means.shape == (0, 3)


def test_on_round_sees_the_state():
    states = []
    run = minimize(
        quadratic(), MomentumTracking(), RING, lr=0.01, rounds=2, on_round=lambda *seen: states.append(seen[2])
    )
    assert states[0] is states[1] is run.state
    assert isinstance(run.state, State)


@pytest.mark.parametrize("rounds", [1, CHUNK - 2, CHUNK - 1, CHUNK, 2 * CHUNK + 1])
def test_the_record_does_not_depend_on_keeping_the_means(rounds):
    problem = quadratic(sigma2=1.0)
    plain = minimize(problem, DSGD(), RING, lr=0.01, rounds=rounds)
    kept = minimize(problem, DSGD(), RING, lr=0.01, rounds=rounds, keep_means=True)
    assert torch.equal(plain.squared_gradients, kept.squared_gradients)
    assert kept.means.shape == (rounds + 1, 3)
    assert torch.equal(kept.means[0], problem.start())
    assert torch.equal(kept.means[-1], kept.x.mean(0))
    assert torch.allclose(kept.squared_gradients, problem.squared_gradient_norms(kept.means), rtol=1e-14)


def test_the_seed_decides_the_noise():
    def run(seed):
        return minimize(quadratic(sigma2=1.0), MomentumTracking(), RING, lr=0.01, rounds=20, seed=seed).x

    assert torch.equal(run(1), run(1))
    assert not torch.equal(run(1), run(2))


def test_x0_is_where_all_nodes_start_and_is_left_alone():
    x0 = torch.tensor([1.0, -2.0, 3.0])
    run = minimize(quadratic(), DSGD(), RING, lr=0.01, rounds=1, x0=x0, keep_means=True)
    assert torch.equal(run.means[0], x0.double())
    assert x0.tolist() == [1.0, -2.0, 3.0]


def test_weight_decay_moves_the_optimum():
    problem, decay = quadratic(), 0.5
    run = minimize(problem, GradientTracking(), RING, lr=0.03, rounds=1000, weight_decay=decay)
    expected = problem.optimum() * problem.mean_curvature / (problem.mean_curvature + decay)
    assert torch.allclose(run.x, expected.expand(4, 3), rtol=0, atol=1e-10)


def test_the_step_size_may_change_with_the_round():
    problem = quadratic()
    asked = []

    def halving(r):
        asked.append(r)
        return 0.1 / 2**r

    run = minimize(problem, DSGD(), topology.complete(4), lr=halving, rounds=2, keep_means=True)
    assert asked == [0, 1]
    first = run.means[0] - 0.1 * problem.mean_gradient(run.means[0])
    second = first - 0.05 * problem.mean_gradient(first)
    assert torch.allclose(run.means[2], second, rtol=0, atol=1e-13)


def test_a_schedule_counts_rounds():
    schedule, problem = Cosine(0.1), quadratic()
    by_schedule = minimize(problem, DSGD(), RING, lr=schedule, rounds=8)
    by_function = minimize(problem, DSGD(), RING, lr=lambda r: schedule.at(r, 8), rounds=8)
    assert torch.equal(by_schedule.x, by_function.x)


def test_tail_mean_is_over_the_last_quarter():
    record = torch.tensor([9.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0], dtype=torch.float64)
    run = Trajectory(record, torch.zeros(1, 1), State(), torch.zeros(0, 1))
    assert run.tail_mean() == 7.5
    assert run.tail_mean(0.5) == 6.5
    assert run.tail_mean(0.0) == 8.0


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"topology": topology.ring(5)}, "4 nodes but the graph 'ring' has 5"),
        ({"rounds": 0}, "at least one round"),
        ({"rounds": 2.5}, "number of rounds must be a whole number"),
        ({"seed": 1.5}, "seed must be a whole number"),
        ({"weight_decay": math.nan}, "weight_decay must be a finite number"),
        ({"lr": lambda r: -1.0}, "step size of round 0 is -1.0"),
        ({"method": 3}, "A method is"),
        ({"topology": topology.Graph(4, [(0, 1)])}, "not with which weights"),
        ({"lr": -0.1}, "step size is -0.1"),
        ({"lr": math.inf}, "step size is inf"),
        ({"lr": math.nan}, "step size is nan"),
        ({"x0": torch.ones(2)}, "3 coordinates, but x0 has the shape"),
        ({"x0": torch.ones(4, 3)}, "one point of 3 coordinates"),
    ],
)
def test_bad_input_gets_a_sentence(changes, words):
    arguments = {"problem": quadratic(), "method": DSGD(), "topology": RING, "lr": 0.1, "rounds": 1} | changes
    with pytest.raises(GossamerError, match=words):
        minimize(**arguments)
