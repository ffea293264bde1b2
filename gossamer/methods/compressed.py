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

REBUILD = 5000
"""Steps from one message with h itself to the next. With one bit per number they are 1 % of the traffic."""


TROUBLE = "stops short of the optimum"
"""What they do on a graph that changes: running sums hold the weights of one graph."""


def consensus_step(method: Method, dim: int) -> Scalar:
    """gamma as given or, by default, delta/(2 - delta), where delta is the compressor's contraction.

    What the neighbours know is old: of each change the share delta arrives at once, delta of the rest a round later, so
    that the mean age is a = (1 - delta)/delta rounds. A step X <- X + gamma (W - I) X that is computed from values a
    rounds old is stable where gamma lambda < 2 sin(pi/(2 (2a + 1))) for every eigenvalue lambda of I - W, if all of
    them are real, as they are for a symmetric W. No lambda is above 2, and sin t >= 2 t/pi, so gamma = 1/(2a + 1) =
    delta/(2 - delta) is stable for every symmetric W. It is 1 where nothing is left out.

    The lambda of a long directed ring are almost imaginary: a difference goes round it instead of dying out, and what
    is old points to where the difference has been. There MoTEF diverged with 1 to 4 bits, with 2 bits even at a gamma
    of 0.5, and with the largest 10 % of the numbers. So these methods need a symmetric W.
    """
    given: Scalar | None = getattr(method, "gamma")  # noqa: B009 - methods with messages to compress have one
    delta = method.compressor.contraction(dim)
    return delta / (2 - delta) if given is None else given


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
