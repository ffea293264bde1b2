"""What methods with compressed messages share: they send what their neighbours do not know yet.

Of a vector x the neighbours know h, the sum of all that was sent: q = C(x - h), h <- h + q. What a method needs of the
neighbours' h is kept as a running sum as well:

    gap <- gap + W q - q                          (gap = W h - h)

Its mean over the nodes must be zero: what is added to x or v in every round adds up, and no later round would take a
rounding error back. So gaps and W q are float64, whatever x is; the bytes on the wire are the same. Rounding in h
itself adds up as well, to 1e-5 of h after 50,000 rounds in float32; so h is mixed as it is every `REBUILD` steps.
"""

import torch
from torch import Tensor

from gossamer import compression
from gossamer._common.checks import check_positive
from gossamer.compression import Compressed, Compressor
from gossamer.errors import InputError
from gossamer.methods.contract import Method, Scalar, add_scaled_
from gossamer.network.contract import Network

RETURNED = 0.95
"""The share of its power with which an error may come back at the usual gamma."""

REBUILD = 5000
"""Steps from one message with h itself to the next. With one bit per number they are 1 % of the traffic."""


TROUBLE = "stops short of the optimum"
"""What they do on a graph that changes: running sums hold the weights of one graph."""


def consensus_step(method: Method, net: Network, dim: int) -> Scalar:
    """gamma as given or, by default, a large one at which what the compressor loses is sure to die out; at most 1.

    What the neighbours know is old: of each change the share delta, the compressor's contraction, arrives at once,
    delta of the rest a round later, so that the mean age is a = (1 - delta)/delta rounds. A step
    X <- X + gamma (W - I) X that is computed from values a rounds old is stable where
    gamma lambda < 2 sin(pi/(2 (2a + 1))) for every eigenvalue lambda of I - W, if all of them are real, as they are for
    a symmetric W. No lambda is above 2, and sin t >= 2 t/pi, so gamma = 1/(2a + 1) = delta/(2 - delta) is stable for
    every symmetric W.

    Compressors that spread what they lose allow more. They pass on delta v and an error of the power
    delta (1 - delta) |v|^2, which varies little. If it is an eigenvector of gamma (I - W) with the eigenvalue g, then

    b(g) = (1 - delta)/delta ((2 + delta) g + 2 delta)/(2 (2 - delta) - delta g)

    times that power is lost again, over all later rounds. (b(g) < 1 is g < 2 delta/(2 - delta): with the largest g of 2
    gamma, the same limit.) But it is spread over the eigenvectors, so the mean of b counts, with a node's squared
    entries as weights. With them the mean of g is gamma (1 - W_ii), times n/(n - 1) if the errors sum to zero over the
    nodes. b is convex: its mean is below the chord from 0 to the largest g. gamma is where that chord is `RETURNED`.

    The lambda of a long directed ring are almost imaginary: a difference goes round it instead of dying out, and what
    is old points to where the difference has been. There MoTEF diverged with 1 to 4 bits, with 2 bits even at a gamma
    of 0.5, and with the largest 10 % of the numbers. So these methods need a symmetric W.
    """
    given: Scalar | None = getattr(method, "gamma")  # noqa: B009 - methods with messages to compress have one
    delta = method.compressor.contraction(dim)
    lowest = delta / (2 - delta)
    if given is not None or not method.compressor.spreads or net.n == 1:
        return lowest if given is None else given
    largest = 1 - net.topology.smallest_eigenvalue
    mean = (1 - net.topology.smallest_own_weight) * net.n / (net.n - 1)
    # b in units of (1 - delta)/delta: `lowest` at 0, and at the largest g what puts the chord at `RETURNED`.
    end = lowest + largest / mean * (RETURNED * delta / (1 - delta) - lowest)
    return min(1.0, (2 * (2 - delta) * end - 2 * delta) / (2 + delta + delta * end) / largest)


def spec_of(compress: str | Compressor) -> str:
    """A compressor as a word, as parameter groups and checkpoints hold it."""
    return str(compression.get(compress))


def check_gamma(title: str, gamma: Scalar | None) -> None:
    """Refuse a consensus step outside (0, 1]."""
    if gamma is None:
        return
    check_positive(title, "gamma", gamma)
    if float(torch.as_tensor(gamma).max()) > 1:
        raise InputError(
            f"{title} needs gamma of at most 1, but gamma is {gamma}: more would step over the neighbours' average; "
            f"leave it out for the usual value."
        )


def wide_zeros(x: Tensor) -> Tensor:
    """A gap, or room for W q: zeros like x in float64 (where the device has it)."""
    return torch.zeros_like(x, dtype=x.dtype if x.device.type == "mps" else torch.float64)


def pull_(x: Tensor, gamma: Scalar, gap: Tensor) -> Tensor:
    """x <- x + gamma (W h - h)."""
    return add_scaled_(x, gamma, gap.to(x.dtype))


def difference(x: Tensor, h: Tensor, gap: Tensor, compressor: Compressor, turn: int) -> Compressed:
    """q = C(x - h);  h <- h + q;  gap <- gap - q, to which W q is added when it has arrived."""
    q = compressor.compress(x - h, turn)
    h.add_(q.values)
    gap.sub_(q.values)
    return q


def rebuild(net: Network, round: int, *pairs: tuple[Tensor, Tensor]) -> None:
    """gap <- W h - h for each (h, gap), out of h itself: in float64, so that the mean of gap stays zero."""
    wide = [h if h.device.type == "mps" else h.double() for h, _ in pairs]
    mixed = net.mix(*wide, round=round).wait()
    for w, h, (_, gap) in zip(mixed, wide, pairs, strict=True):
        gap.copy_(w.sub_(h))
