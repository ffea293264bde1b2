"""The reference implementation of the methods that save traffic: compressed messages, and several steps per exchange.

Compressors are written down once more as well: number by number, in numpy.
"""

import math

import numpy as np

from gossamer.testing.reference_world import ReferenceMethod, Vector, Vectors, World

# The step of equidistant levels on normal numbers, and its mean square error.
STEPS = {1: (1.596, 0.3634), 2: (0.9957, 0.1188), 3: (0.651, 0.0469), 4: (0.353, 0.0129)}


def quantized(v: Vector, bits: int, block: int = 256) -> Vector:
    """Every number at its nearest level; then the scale of each block by least squares, rounded to float32."""
    result = np.zeros_like(v)
    for first in range(0, len(v), block):
        part = v[first : first + block]
        count = 2**bits if bits <= 2 else 2**bits - 1
        levels = np.array([k - (count - 1) / 2 for k in range(count)])
        step = STEPS[bits][0] * math.sqrt(sum(part**2) / len(part)) if bits in STEPS else max(abs(part)) / levels[-1]
        if step == 0:
            continue
        nearest = np.array([levels[np.argmin(np.abs(levels * step - number))] for number in part])
        power = sum(nearest**2)
        scale = np.float32(sum(part * nearest) / power) if power else 0.0
        result[first : first + block] = nearest * np.float64(scale)
    return result


def signs(v: Vector, turn: int, block: int = 256) -> Vector:
    """One bit: the signs and the mean size of every block after a rotation, which is other in every turn; then back."""
    block = min(block, 1 << (len(v) - 1).bit_length())
    rows = 1 << (block.bit_length() // 2)
    columns = block // rows
    flips = [_coin(turn * (rows + columns) + k) for k in range(rows + columns)]

    def entry(p: int, q: int) -> int:
        """How the number at place p of a block enters the number at place q of the rotated one: 1 or -1."""
        (row, column), (other_row, other_column) = divmod(p, columns), divmod(q, columns)
        parity = (row & other_row).bit_count() + (column & other_column).bit_count()
        return int(flips[row] * flips[rows + column] * (-1) ** parity)

    result = np.zeros_like(v)
    for first in range(0, len(v), block):
        part = v[first : first + block]
        turned = [sum(entry(p, q) * part[p] for p in range(len(part))) for q in range(block)]
        size = np.float64(np.float32(sum(abs(number) for number in turned) / block))
        for p in range(len(part)):
            result[first + p] = size * sum(entry(p, q) * (1 if turned[q] >= 0 else -1) for q in range(block)) / block
    return result


def _coin(k: int) -> int:
    """1 or -1, by the generator SplitMix64 (Steele, Lea and Flood, 2014) at place k."""
    mixed = k * 0x9E3779B97F4A7C15 % 2**64
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ mixed >> shift) * factor % 2**64
    return -1 if mixed >> 63 else 1


def largest(v: Vector, share: float) -> Vector:
    """The largest numbers in size, rounded to float32, and 0 elsewhere."""
    kept = sorted(range(len(v)), key=lambda k: -abs(v[k]))[: max(1, math.ceil(share * len(v) - 1e-9))]
    result = np.zeros_like(v)
    for k in kept:
        result[k] = np.float32(v[k])
    return result


def compressed(spec: str, v: Vector, turn: int) -> Vector:
    """What "identity", "quantize:bits=B" or "top-k:share=S" keeps of a vector in the turn-th message."""
    name, _, value = spec.partition(":")
    number = value.partition("=")[2]
    if name == "identity":
        return v.copy()
    if spec == "quantize:bits=1":
        return signs(v, turn)
    return quantized(v, int(number)) if name == "quantize" else largest(v, float(number))


class Ledger:
    """What everybody knows of a vector of everybody: each node keeps a copy for itself and each of its neighbours."""

    def __init__(self, world: World, spec: str, start: Vectors) -> None:
        self.world, self.spec, self.turn = world, spec, 0
        self.known: dict[int, Vectors] = {i: {j: start[j].copy() for j in world.weights(0)[i]} for i in world.nodes}

    def send(self, x: Vectors) -> None:
        """Everybody tells its neighbours what they do not know yet, compressed; all add it to their copies."""
        letters = {i: compressed(self.spec, x[i] - self.known[i][i], self.turn) for i in self.world.nodes}
        self.turn += 1
        for i in self.world.nodes:
            for j in self.known[i]:
                self.known[i][j] = self.known[i][j] + letters[j]

    def expect(self, eta: float, of_v: "Ledger") -> None:
        """Everybody takes the step that it knows of, in all copies: no letter has to say it."""
        for i in self.world.nodes:
            for j in self.known[i]:
                self.known[i][j] = self.known[i][j] - eta * of_v.known[i][j]

    def pull(self, i: int) -> Vector:
        """How far the average of what node i knows is from what is known of itself."""
        weights = self.world.weights(0)[i]
        total = np.zeros_like(self.known[i][i])
        for j, copy in self.known[i].items():
            total = total + weights[j] * (copy - self.known[i][i])
        return total


class MoTEF(ReferenceMethod):
    """Momentum Tracking in which nodes hear only compressed differences."""

    def __init__(
        self,
        world: World,
        start: Vector,
        beta: float = 0.9,
        compress: str = "quantize:bits=4",
        gamma: float | None = None,
        init: str = "theorem",
        predict: bool = False,
    ) -> None:
        super().__init__(world, start)
        self.beta, self.init, self.predict = beta, init, predict
        self.gamma = usual_gamma(world, compress, start) if gamma is None else gamma
        self.u, self.v = self.zeros(), self.zeros()
        self.of_x, self.of_v = Ledger(world, compress, self.x), Ledger(world, compress, self.zeros())

    def round(self, r: int, g: Vectors, eta: float) -> None:
        if r == 0 and self.init == "theorem":
            mean = self.world.mean(g)
            self.u = {i: (g[i] - mean) / (1 - self.beta) for i in self.nodes}
        for i in self.nodes:
            u = self.beta * self.u[i] + g[i]
            self.v[i] = self.v[i] + self.gamma * self.of_v.pull(i) + u - self.u[i]
            self.u[i] = u
            self.x[i] = self.x[i] + self.gamma * self.of_x.pull(i) - eta * self.v[i]
        if self.predict:
            self.of_x.expect(eta, self.of_v)
        self.of_x.send(self.x)
        self.of_v.send(self.v)


class BEER(ReferenceMethod):
    """Gradient Tracking in which nodes hear only compressed differences."""

    def __init__(
        self,
        world: World,
        start: Vector,
        compress: str = "quantize:bits=4",
        gamma: float | None = None,
        init: str = "theorem",
    ) -> None:
        super().__init__(world, start)
        self.init = init
        self.gamma = usual_gamma(world, compress, start) if gamma is None else gamma
        self.g_old, self.v = self.zeros(), self.zeros()
        self.of_x, self.of_v = Ledger(world, compress, self.x), Ledger(world, compress, self.zeros())

    def round(self, r: int, g: Vectors, eta: float) -> None:
        if r == 0 and self.init == "theorem":
            mean = self.world.mean(g)
            self.g_old = {i: g[i] - mean for i in self.nodes}
        for i in self.nodes:
            self.v[i] = self.v[i] + self.gamma * self.of_v.pull(i) + g[i] - self.g_old[i]
            self.x[i] = self.x[i] + self.gamma * self.of_x.pull(i) - eta * self.v[i]
        self.g_old = {i: g[i].copy() for i in self.nodes}
        self.of_x.send(self.x)
        self.of_v.send(self.v)


class ChocoSGDm(ReferenceMethod):
    """DSGDm in which nodes hear only compressed differences."""

    def __init__(
        self,
        world: World,
        start: Vector,
        beta: float = 0.9,
        compress: str = "quantize:bits=4",
        gamma: float | None = None,
    ) -> None:
        super().__init__(world, start)
        self.beta = beta
        self.gamma = usual_gamma(world, compress, start) if gamma is None else gamma
        self.u = self.zeros()
        self.of_x = Ledger(world, compress, self.x)

    def round(self, r: int, g: Vectors, eta: float) -> None:
        self.u = {i: self.beta * self.u[i] + g[i] for i in self.nodes}
        half = {i: self.x[i] - eta * self.u[i] for i in self.nodes}
        self.of_x.send(half)
        self.x = {i: half[i] + self.gamma * self.of_x.pull(i) for i in self.nodes}


class ChocoSGD(ChocoSGDm):
    """DSGD in which nodes hear only compressed differences."""

    def __init__(
        self, world: World, start: Vector, compress: str = "quantize:bits=4", gamma: float | None = None
    ) -> None:
        super().__init__(world, start, beta=0.0, compress=compress, gamma=gamma)


class KGT(ReferenceMethod):
    """K corrected steps alone, then an exchange of models and of what the steps amounted to."""

    def __init__(self, world: World, start: Vector, every: int = 5, beta: float = 0.0) -> None:
        super().__init__(world, start)
        self.every, self.beta = every, beta
        self.u, self.c = self.zeros(), self.zeros()
        self.before: Vectors = {}
        self.rates: list[float] = []

    def round(self, r: int, g: Vectors, eta: float) -> None:
        if r == 0:
            mean = self.world.mean(g)
            self.u = {i: (g[i] - mean) / (1 - self.beta) for i in self.nodes}
            self.c = {i: (mean - g[i]) / (1 - self.beta) for i in self.nodes}
        if r % self.every == 0:
            self.before, self.rates = {i: self.x[i].copy() for i in self.nodes}, []
        self.rates.append(eta)
        for i in self.nodes:
            self.u[i] = self.beta * self.u[i] + g[i]
            self.x[i] = self.x[i] - eta * (self.u[i] + self.c[i])
        if r % self.every == self.every - 1:
            if sum(self.rates) > 0:
                z = {i: (self.before[i] - self.x[i]) / sum(self.rates) for i in self.nodes}
                averaged = self.world.gossip(r, z)
                self.c = {i: self.c[i] - z[i] + averaged[i] for i in self.nodes}
            self.x = self.world.gossip(r, self.x)


class LED(ReferenceMethod):
    """K steps alone, each with a K-th of the correction, then an exchange of models."""

    def __init__(self, world: World, start: Vector, every: int = 5, beta: float = 0.0) -> None:
        super().__init__(world, start)
        self.every, self.beta = every, beta
        self.u, self.y = self.zeros(), self.zeros()

    def round(self, r: int, g: Vectors, eta: float) -> None:
        for i in self.nodes:
            self.u[i] = self.beta * self.u[i] + g[i]
            self.x[i] = self.x[i] - eta * self.u[i] - self.y[i] / self.every
        if r % self.every == self.every - 1:
            alone, self.x = self.x, self.world.gossip(r, self.x)
            self.y = {i: self.y[i] + alone[i] - self.x[i] for i in self.nodes}


class EDM(ReferenceMethod):
    """D^2 whose half step follows a heavy ball: last round's half step is taken back as it was made."""

    def __init__(self, world: World, start: Vector, beta: float = 0.9) -> None:
        super().__init__(world, start)
        self.beta = beta
        self.u = self.zeros()
        self.p_previous: Vectors = {i: self.x[i].copy() for i in self.nodes}

    def round(self, r: int, g: Vectors, eta: float) -> None:
        self.u = {i: self.beta * self.u[i] + g[i] for i in self.nodes}
        p = {i: self.x[i] - eta * self.u[i] for i in self.nodes}
        self.x = self.world.gossip(r, {i: p[i] + self.x[i] - self.p_previous[i] for i in self.nodes})
        self.p_previous = p


def usual_gamma(world: World, compress: str, start: Vector) -> float:
    """1/(1 + 2 age), where of everything the share delta is known at once, and delta of the rest a round later.

    Quantized messages allow more: the gamma, up to 1, where a bound of what comes back of an error's power is 0.95.
    """
    name, _, value = compress.partition(":")
    number = value.partition("=")[2]
    if name == "identity":
        return 1.0
    if name == "quantize":
        delta = 1 - STEPS[int(number)][1]
    else:
        delta = 1 - (1 - max(1, math.ceil(float(number) * len(start) - 1e-9)) / len(start)) ** 3
    if name != "quantize" or len(world.nodes) == 1:
        age = (1 - delta) / delta
        return 1 / (1 + 2 * age)
    n, weights = len(world.nodes), world.weights(0)
    matrix = np.array([[weights[i].get(j, 0.0) for j in world.nodes] for i in world.nodes])
    largest, mean = 1 - np.linalg.eigvalsh(matrix)[0], (1 - min(np.diag(matrix))) * n / (n - 1)

    def comes_back(g: float) -> float:
        """The share of an error's power that comes back if it is an eigenvector with the eigenvalue g."""
        return float((1 - delta) / delta * ((2 + delta) * g + 2 * delta) / (2 * (2 - delta) - delta * g))

    low, high = 0.0, 1.0
    for _ in range(60):
        gamma = (low + high) / 2
        bound = comes_back(0) + mean / largest * (comes_back(gamma * largest) - comes_back(0))
        low, high = (gamma, high) if bound < 0.95 else (low, gamma)
    return high
