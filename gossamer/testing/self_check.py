"""A quick look whether the methods compute on this machine what they are meant to compute."""

from dataclasses import dataclass

from gossamer import methods, topology
from gossamer.testing import reference
from gossamer.testing.trajectories import NoisyQuadratics, distance, library_run, reference_run

TOLERANCE = 1e-10


@dataclass(frozen=True)
class SelfCheck:
    """One method on one graph against the reference implementation."""

    method: str
    topology: str
    gap: float
    """max |a - b| / max |a| over all rounds, in float64."""

    @property
    def passed(self) -> bool:
        """Whether the two agree to rounding."""
        return self.gap <= TOLERANCE


def self_check(rounds: int = 20) -> list[SelfCheck]:
    """Every method of the package against the reference implementation, on a graph that it accepts."""
    task = NoisyQuadratics.drawn(rounds=rounds)
    rates = [0.03] * rounds
    checks = []
    for name in reference.METHODS:
        needs = methods.find(name).facts.needs
        graph = topology.chain(8) if needs.tree else topology.ring(8).lazy()
        gap = distance(library_run(name, graph, task, rates), reference_run(name, graph, task, rates))
        checks.append(SelfCheck(name, graph.name, gap))
    return checks
