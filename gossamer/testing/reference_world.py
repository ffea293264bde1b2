"""The nodes of the reference implementation, how they gossip, and what its methods share."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
Vectors = dict[int, Vector]  # one vector per node
Weights = dict[int, dict[int, float]]  # weights[i][j]: the weight that node i gives to what node j sends; i included
Edge = tuple[int, int]  # (sender, receiver)


@dataclass
class World:
    """Who hears whom: the weights of every round and, on an undirected graph that never changes, the neighbours."""

    nodes: list[int]
    weights: Callable[[int], Weights]
    neighbours: Mapping[int, set[int]]

    def gossip(self, r: int, spoken: Vectors) -> Vectors:
        """Everybody sends its vector to those who listen in round r; everybody averages what it has and what it got."""
        weights = self.weights(r)
        mailbox: dict[int, Vectors] = {i: {} for i in self.nodes}
        for listener in self.nodes:
            for speaker in weights[listener]:
                if speaker != listener:
                    mailbox[listener][speaker] = spoken[speaker].copy()
        averages = {}
        for i in self.nodes:
            total = weights[i].get(i, 0.0) * spoken[i]
            for j, letter in mailbox[i].items():
                total = total + weights[i][j] * letter
            averages[i] = total
        return averages

    def mean(self, spoken: Vectors) -> Vector:
        """The exact average over all nodes."""
        total = spoken[self.nodes[0]].copy()
        for i in self.nodes[1:]:
            total = total + spoken[i]
        return total / len(self.nodes)


class ReferenceMethod(ABC):
    """What all methods share: a world, and nodes that start from the same point."""

    def __init__(self, world: World, start: Vector) -> None:
        self.world = world
        self.nodes = world.nodes
        self.x: Vectors = {i: start.copy() for i in self.nodes}

    def zeros(self) -> Vectors:
        """A zero vector for every node."""
        return {i: np.zeros_like(self.x[i]) for i in self.nodes}

    @abstractmethod
    def round(self, r: int, g: Vectors, eta: float) -> None:
        """One round: changes `x` and whatever else the nodes remember."""
