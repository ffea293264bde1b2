"""Every method once more: one node at a time, in the words of the papers, and as slowly as it likes.

This is the reference implementation that the library is compared with. Nothing here is stacked, fused, done in place
or shared with the package: a node is an integer, what it knows is a numpy float64 vector in a dictionary, and what it
learns from others has been put into its mailbox. Step sizes and hyper-parameters are plain numbers.

Each class holds `x`, the parameters of all nodes, and makes one round at a time with `round(r, g, eta)`, where `g` maps
every node to its gradient (weight decay already added) and `eta` is the step size of round `r`.
"""

import numpy as np

from gossamer.testing import reference_traffic as traffic
from gossamer.testing.reference_world import Edge, ReferenceMethod, Vector, Vectors, World


class DSGD(ReferenceMethod):
    """Step, then average."""

    def round(self, r: int, g: Vectors, eta: float) -> None:
        half = {i: self.x[i] - eta * g[i] for i in self.nodes}
        self.x = self.world.gossip(r, half)


class DSGDm(ReferenceMethod):
    """DSGD with each node's own heavy ball: nothing corrects for the others' data."""

    def __init__(self, world: World, start: Vector, beta: float = 0.9, nesterov: bool = False) -> None:
        super().__init__(world, start)
        self.beta, self.nesterov = beta, nesterov
        self.u = self.zeros()

    def direction(self, g: Vectors) -> Vectors:
        """The new momentum; with Nesterov's look ahead, the gradient plus beta times the new momentum."""
        self.u = {i: self.beta * self.u[i] + g[i] for i in self.nodes}
        if self.nesterov:
            return {i: g[i] + self.beta * self.u[i] for i in self.nodes}
        return self.u

    def round(self, r: int, g: Vectors, eta: float) -> None:
        direction = self.direction(g)
        half = {i: self.x[i] - eta * direction[i] for i in self.nodes}
        self.x = self.world.gossip(r, half)


class QGDSGDm(ReferenceMethod):
    """The momentum follows the movement of x, averaging included, instead of the node's own gradients."""

    def __init__(self, world: World, start: Vector, beta: float = 0.9, mu: float | None = None) -> None:
        super().__init__(world, start)
        self.beta, self.mu = beta, beta if mu is None else mu
        self.m = self.zeros()

    def round(self, r: int, g: Vectors, eta: float) -> None:
        u = {i: self.beta * self.m[i] + g[i] for i in self.nodes}
        half = {i: self.x[i] - eta * u[i] for i in self.nodes}
        new = self.world.gossip(r, half)
        if eta != 0:
            for i in self.nodes:
                moved = (self.x[i] - new[i]) / eta
                self.m[i] = self.mu * self.m[i] + (1 - self.mu) * moved
        self.x = new


class DecentLaM(ReferenceMethod):
    """Heavy ball on the direction in which one round of DSGD would have moved the node."""

    def __init__(self, world: World, start: Vector, beta: float = 0.9) -> None:
        super().__init__(world, start)
        self.beta = beta
        self.u = self.zeros()

    def round(self, r: int, g: Vectors, eta: float) -> None:
        half = {i: self.x[i] - eta * g[i] for i in self.nodes}
        averaged = self.world.gossip(r, half)
        if eta == 0:
            self.x = averaged
            return
        for i in self.nodes:
            g_hat = (self.x[i] - averaged[i]) / eta
            self.u[i] = self.beta * self.u[i] + g_hat
            self.x[i] = self.x[i] - eta * self.u[i]


class MomentumTracking(ReferenceMethod):
    """The paper's (U, C): the correction c_i turns the node's own momentum into an estimate of everybody's.

    What leaves at the end of round r, x and c - u, is averaged with the weights of round r + 1. Hence x is averaged
    with the weights of its own round, and c with those of the round to come.
    """

    def __init__(self, world: World, start: Vector, beta: float = 0.9, init: str = "theorem") -> None:
        super().__init__(world, start)
        self.beta, self.init = beta, init
        self.u, self.c = self.zeros(), self.zeros()

    def start_as_theorem_1(self, g: Vectors) -> None:
        """u_i = c_i = (g_i - the average gradient) / (1 - beta), at the first batch."""
        mean = self.world.mean(g)
        self.u = {i: (g[i] - mean) / (1 - self.beta) for i in self.nodes}
        self.c = {i: (g[i] - mean) / (1 - self.beta) for i in self.nodes}

    def round(self, r: int, g: Vectors, eta: float) -> None:
        if r == 0 and self.init == "theorem":
            self.start_as_theorem_1(g)
        self.u = {i: self.beta * self.u[i] + g[i] for i in self.nodes}
        averaged_x = self.world.gossip(r, self.x)
        averaged_c = self.world.gossip(r + 1, {i: self.c[i] - self.u[i] for i in self.nodes})
        for i in self.nodes:
            self.x[i] = averaged_x[i] - eta * (self.u[i] - self.c[i])
            self.c[i] = averaged_c[i] + self.u[i]


class GradientTracking(ReferenceMethod):
    """c_i turns the node's own gradient into an estimate of everybody's."""

    def __init__(self, world: World, start: Vector, init: str = "theorem") -> None:
        super().__init__(world, start)
        self.init = init
        self.c = self.zeros()

    def round(self, r: int, g: Vectors, eta: float) -> None:
        if r == 0 and self.init == "theorem":
            mean = self.world.mean(g)
            self.c = {i: g[i] - mean for i in self.nodes}
        averaged_x = self.world.gossip(r, self.x)
        averaged_c = self.world.gossip(r + 1, {i: self.c[i] - g[i] for i in self.nodes})
        for i in self.nodes:
            self.x[i] = averaged_x[i] - eta * (g[i] - self.c[i])
            self.c[i] = averaged_c[i] + g[i]


class GradientEstimate:
    """s_i estimates the average gradient: s <- W s + g - g_prev, and s = g at first."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.s: Vectors = {}
        self.g_previous: Vectors = {}

    def update(self, r: int, g: Vectors) -> Vectors:
        """The estimates of round r."""
        if r == 0:
            self.s = {i: g[i].copy() for i in g}
        else:
            averaged = self.world.gossip(r, self.s)
            self.s = {i: averaged[i] + g[i] - self.g_previous[i] for i in g}
        self.g_previous = {i: g[i].copy() for i in g}
        return self.s


class ABm(ReferenceMethod):
    """Gradient tracking with a heavy ball on x."""

    def __init__(self, world: World, start: Vector, beta: float = 0.9) -> None:
        super().__init__(world, start)
        self.beta = beta
        self.estimate = GradientEstimate(world)
        self.x_previous = {i: self.x[i].copy() for i in self.nodes}

    def round(self, r: int, g: Vectors, eta: float) -> None:
        s = self.estimate.update(r, g)
        averaged = self.world.gossip(r, self.x)
        new = {}
        for i in self.nodes:
            new[i] = averaged[i] - eta * s[i] + self.beta * (self.x[i] - self.x_previous[i])
        self.x_previous, self.x = self.x, new


class GTAdam(ReferenceMethod):
    """Adam on the tracked gradient."""

    def __init__(
        self,
        world: World,
        start: Vector,
        b1: float = 0.9,
        b2: float = 0.999,
        eps: float = 1e-8,
        gmax: float | None = None,
    ) -> None:
        super().__init__(world, start)
        self.b1, self.b2, self.eps, self.gmax = b1, b2, eps, gmax
        self.estimate = GradientEstimate(world)
        self.m, self.v = self.zeros(), self.zeros()

    def round(self, r: int, g: Vectors, eta: float) -> None:
        s = self.estimate.update(r, g)
        averaged = self.world.gossip(r, self.x)
        for i in self.nodes:
            self.m[i] = self.b1 * self.m[i] + (1 - self.b1) * s[i]
            self.v[i] = self.b2 * self.v[i] + (1 - self.b2) * s[i] * s[i]
            if self.gmax is not None:
                self.v[i] = np.minimum(self.v[i], self.gmax)
            self.x[i] = averaged[i] - eta * self.m[i] / np.sqrt(self.v[i] + self.eps)


class D2(ReferenceMethod):
    """Variance reduction over the nodes: last round's step is taken back with the step size it was made with."""

    def __init__(self, world: World, start: Vector) -> None:
        super().__init__(world, start)
        self.x_previous: Vectors = {}
        self.p_previous: Vectors = {}  # eta * g of the round before

    def round(self, r: int, g: Vectors, eta: float) -> None:
        if r == 0:
            half = {i: self.x[i] - eta * g[i] for i in self.nodes}
        else:
            half = {}
            for i in self.nodes:
                half[i] = 2 * self.x[i] - self.x_previous[i] - eta * g[i] + self.p_previous[i]
        self.x_previous = self.x
        self.p_previous = {i: eta * g[i] for i in self.nodes}
        self.x = self.world.gossip(r, half)


class RelaySum(ReferenceMethod):
    """On a tree every node passes on, to each neighbour, the sum of what is behind it, with the number of its terms.

    `fill` says what stands in for nodes that have not been heard of yet: nothing ("arrived": divide by the number of
    terms that have arrived) or the node's own half step ("own": divide by N).
    """

    def __init__(self, world: World, start: Vector, fill: str = "arrived") -> None:
        super().__init__(world, start)
        self.fill = fill
        edges = [(i, j) for i in self.nodes for j in world.neighbours[i]]
        self.message: dict[Edge, Vector] = {edge: np.zeros_like(start) for edge in edges}
        self.count: dict[Edge, int] = dict.fromkeys(edges, 0)

    def half_step(self, g: Vectors, eta: float) -> Vectors:
        """Where the nodes would go alone."""
        return {i: self.x[i] - eta * g[i] for i in self.nodes}

    def round(self, r: int, g: Vectors, eta: float) -> None:
        half = self.half_step(g, eta)
        message: dict[Edge, Vector] = {}
        count: dict[Edge, int] = {}
        for i in self.nodes:
            for j in self.world.neighbours[i]:
                message[i, j] = half[i].copy()
                count[i, j] = 1
                for k in self.world.neighbours[i] - {j}:
                    message[i, j] = message[i, j] + self.message[k, i]
                    count[i, j] = count[i, j] + self.count[k, i]
        self.message, self.count = message, count

        for i in self.nodes:
            total, terms = half[i].copy(), 1
            for j in self.world.neighbours[i]:
                total = total + message[j, i]
                terms = terms + count[j, i]
            if self.fill == "own":
                missing = len(self.nodes) - terms
                total, terms = total + missing * half[i], len(self.nodes)
            self.x[i] = total / terms


class RelaySumM(RelaySum):
    """RelaySum whose half step follows the node's own heavy ball."""

    def __init__(
        self, world: World, start: Vector, beta: float = 0.9, nesterov: bool = False, fill: str = "arrived"
    ) -> None:
        super().__init__(world, start, fill)
        self.beta, self.nesterov = beta, nesterov
        self.u = self.zeros()

    def half_step(self, g: Vectors, eta: float) -> Vectors:
        half = {}
        for i in self.nodes:
            self.u[i] = self.beta * self.u[i] + g[i]
            direction = g[i] + self.beta * self.u[i] if self.nesterov else self.u[i]
            half[i] = self.x[i] - eta * direction
        return half


class AllReduceSGDm(ReferenceMethod):
    """Every node makes the step of one machine that holds all the data."""

    def __init__(self, world: World, start: Vector, beta: float = 0.9, nesterov: bool = False) -> None:
        super().__init__(world, start)
        self.beta, self.nesterov = beta, nesterov
        self.u = self.zeros()

    def round(self, r: int, g: Vectors, eta: float) -> None:
        mean = self.world.mean(g)
        for i in self.nodes:
            self.u[i] = self.beta * self.u[i] + mean
            direction = mean + self.beta * self.u[i] if self.nesterov else self.u[i]
            self.x[i] = self.x[i] - eta * direction


METHODS: dict[str, type[ReferenceMethod]] = {
    "dsgd": DSGD,
    "dsgdm": DSGDm,
    "qg-dsgdm": QGDSGDm,
    "decentlam": DecentLaM,
    "gradient-tracking": GradientTracking,
    "momentum-tracking": MomentumTracking,
    "abm": ABm,
    "gtadam": GTAdam,
    "d2": D2,
    "relaysum": RelaySum,
    "relaysum-m": RelaySumM,
    "all-reduce-sgdm": AllReduceSGDm,
    "edm": traffic.EDM,
    "led": traffic.LED,
    "k-gt": traffic.KGT,
    "choco-sgd": traffic.ChocoSGD,
    "choco-sgdm": traffic.ChocoSGDm,
    "beer": traffic.BEER,
    "motef": traffic.MoTEF,
}
