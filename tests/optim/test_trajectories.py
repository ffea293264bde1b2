"""Real processes follow the simulator, for every method on every graph it accepts."""

import pytest

from gossamer import methods, optim
from gossamer.network import SimulatedNetwork
from tests.optim import cases
from tests.optim.nodes import values
from tests.optim.tasks import LONG, TASKS, Task, combinations, compressed, long_run, simulate


@pytest.mark.timeout(360)
@pytest.mark.parametrize("n", [4, pytest.param(8, marks=pytest.mark.slow)])
def test_real_nodes_follow_the_simulator(n: int) -> None:
    real = values(n, cases.trajectories, n, timeout=300)
    for name, where, topology in combinations(n):
        for kind, task in TASKS.items():
            method = getattr(optim, name.partition(" ")[0]).method(**compressed(name))
            simulated = simulate(task, method, topology)
            for rank in range(n):
                trace = real[rank][f"{name} on {where}"][kind]
                gap = float((trace - simulated[:, rank]).abs().max() / simulated.abs().max())
                assert gap <= task.tolerance, f"{name} on {where}, {kind}: node {rank} of {n} is off by {gap:.1e}"


def test_every_wire_format_follows_the_simulator() -> None:
    real = values(4, cases.long_vectors)
    for (name, spec, dtype), *ends in zip(LONG, *real, strict=True):
        simulated = long_run(methods.get(name, compress=spec), dtype, SimulatedNetwork(cases.RING, dtype))
        for rank, end in enumerate(ends):
            gap = float((end - simulated[rank]).abs().max() / simulated.abs().max())
            assert gap <= Task(dtype).tolerance, f"{name} with {spec}, {dtype}: node {rank} is off by {gap:.1e}"
