"""The layers of a chain but for convolutions, forward and backward, on one block of samples.

A block is as many samples as a vector has lanes. Its numbers are in the workspace `ws` as vectors of samples: `x` or
`at` is where they begin, `stride` how far one channel is from the next, and the vectors of one channel are neighbours.
"""

import math
from typing import Any

from gossamer.engine.gradients.compiled.compilation import inner
from gossamer.engine.gradients.compiled.vectors import (
    closed,
    fill,
    fma,
    gate,
    larger,
    load,
    only,
    place,
    relu,
    root,
    spread,
    store,
    total,
    totals,
    turn_square,
    width,
)


@inner
def clear(ws: Any, at: int, numbers: int) -> None:
    """Zeros, a whole number of vectors."""
    for i in range(at, at + numbers, width(ws)):
        store(ws, i, fill(ws, 0.0))


@inner
def rectify(ws: Any, at: int, stride: int, channels: int, inner: int) -> None:
    """ReLU, in place."""
    lanes = width(ws)
    for c in range(channels):
        for i in range(at + c * stride, at + c * stride + inner * lanes, lanes):
            store(ws, i, relu(load(ws, i)))


@inner
def rectify_back(ws: Any, y: int, dy: int, stride: int, channels: int, inner: int) -> None:
    """The gradient of a ReLU whose output is y, in place."""
    lanes = width(ws)
    for c in range(channels):
        for i in range(c * stride, c * stride + inner * lanes, lanes):
            store(ws, dy + i, gate(load(ws, y + i), load(ws, dy + i)))


@inner
def bias(ws: Any, at: int, stride: int, channels: int, inner: int, parameters: Any, start: int) -> None:
    """Add a number to every channel, in place."""
    lanes = width(ws)
    for c in range(channels):
        own = spread(parameters, start + c)
        for i in range(at + c * stride, at + c * stride + inner * lanes, lanes):
            store(ws, i, load(ws, i) + own)


@inner
def bias_back(ws: Any, dy: int, stride: int, channels: int, inner: int, sums: int) -> None:
    """Add each channel's gradients to `sums` [channels, lanes]."""
    lanes = width(ws)
    for c in range(channels):
        acc = load(ws, sums + c * lanes)
        for i in range(dy + c * stride, dy + c * stride + inner * lanes, lanes):
            acc = acc + load(ws, i)
        store(ws, sums + c * lanes, acc)


@inner
def lanes_sum(ws: Any, sums: int, count: int, gradient: Any, start: int) -> None:
    """Add up the lanes of `count` vectors."""
    lanes = width(ws)
    whole = count - count % lanes
    for i in range(0, whole, lanes):
        store(gradient, start + i, totals(ws, sums + i * lanes))
    for i in range(whole, count):
        gradient[start + i] = total(load(ws, sums + i * lanes))


@inner
def source(op: Any, c: int, y: int, z: int, a: int, b: int) -> int:
    """Which number of the input stands at place (a, b) of the window (y, z) of channel c; -1 for padding."""
    i = y * op.stride_y - op.padding_y + a * op.dilation_y
    j = z * op.stride_x - op.padding_x + b * op.dilation_x
    return (c * op.rows + i) * op.columns + j if 0 <= i < op.rows and 0 <= j < op.columns else -1


@inner
def max_pool(op: Any, ws: Any, x: int, out: int, index: int) -> None:
    """Maxima of any windows."""
    lanes = width(ws)
    for c in range(op.channels):
        for y in range(op.out_rows):
            for z in range(op.out_columns):
                best, chosen = fill(ws, -math.inf), fill(ws, -1.0)
                for a in range(op.kernel_y):
                    for b in range(op.kernel_x):
                        at = source(op, c, y, z, a, b)
                        if at >= 0:
                            value = load(ws, x + at * lanes)
                            number = fill(ws, a * op.kernel_x + b)
                            chosen = closed(chosen + fill(ws, 1.0), chosen, number)  # the first one that is there
                            chosen = place(best, value, chosen, number)
                            best = larger(best, value)
                to = ((c * op.out_rows + y) * op.out_columns + z) * lanes
                store(ws, out + to, best)
                store(ws, index + to, chosen)


@inner
def max_pool_back(op: Any, ws: Any, dx: int, dy: int, index: int) -> None:
    """The gradient of `max_pool`."""
    lanes = width(ws)
    clear(ws, dx, op.channels * op.rows * op.columns * lanes)
    for c in range(op.channels):
        for y in range(op.out_rows):
            for z in range(op.out_columns):
                at = ((c * op.out_rows + y) * op.out_columns + z) * lanes
                own, chosen = load(ws, dy + at), load(ws, index + at)
                for a in range(op.kernel_y):
                    for b in range(op.kernel_x):
                        to = source(op, c, y, z, a, b) * lanes
                        if to >= 0:
                            to += dx
                            store(ws, to, load(ws, to) + only(chosen, fill(ws, a * op.kernel_x + b), own))


@inner
def mean_pool(op: Any, ws: Any, x: int, out: int) -> None:
    """Means of any windows, padding counted."""
    lanes = width(ws)
    for c in range(op.channels):
        for y in range(op.out_rows):
            for z in range(op.out_columns):
                acc = fill(ws, 0.0)
                for i in range(
                    max(0, y * op.stride_y - op.padding_y), min(op.rows, y * op.stride_y - op.padding_y + op.kernel_y)
                ):
                    for j in range(
                        max(0, z * op.stride_x - op.padding_x),
                        min(op.columns, z * op.stride_x - op.padding_x + op.kernel_x),
                    ):
                        acc = acc + load(ws, x + ((c * op.rows + i) * op.columns + j) * lanes)
                store(
                    ws,
                    out + ((c * op.out_rows + y) * op.out_columns + z) * lanes,
                    acc / fill(ws, op.kernel_y * op.kernel_x),
                )


@inner
def mean_pool_back(op: Any, ws: Any, dx: int, dy: int) -> None:
    """The gradient of `mean_pool`."""
    lanes = width(ws)
    clear(ws, dx, op.channels * op.rows * op.columns * lanes)
    for c in range(op.channels):
        for y in range(op.out_rows):
            for z in range(op.out_columns):
                own = load(ws, dy + ((c * op.out_rows + y) * op.out_columns + z) * lanes) / fill(
                    ws, op.kernel_y * op.kernel_x
                )
                for i in range(
                    max(0, y * op.stride_y - op.padding_y), min(op.rows, y * op.stride_y - op.padding_y + op.kernel_y)
                ):
                    for j in range(
                        max(0, z * op.stride_x - op.padding_x),
                        min(op.columns, z * op.stride_x - op.padding_x + op.kernel_x),
                    ):
                        to = dx + ((c * op.rows + i) * op.columns + j) * lanes
                        store(ws, to, load(ws, to) + own)


@inner
def group_norm(op: Any, par: Any, ws: Any, x: int, stride: int, inner: int, out: int, kept: int, far: int) -> None:
    """Normalize each group to mean 0 and variance 1, times gamma plus beta; keep (mean, 1 / deviation), `far` apart."""
    lanes = width(ws)
    groups, depth, gamma, beta = op.groups, op.channels // op.groups, op.gamma, op.beta
    count = fill(ws, depth * inner)
    for g in range(groups):
        low, high = g * depth, (g + 1) * depth
        sums = fill(ws, 0.0)
        for c in range(low, high):
            for i in range(x + c * stride, x + c * stride + inner * lanes, lanes):
                sums = sums + load(ws, i)
        mean = sums / count
        sums = fill(ws, 0.0)
        for c in range(low, high):
            for i in range(x + c * stride, x + c * stride + inner * lanes, lanes):
                off = load(ws, i) - mean
                sums = sums + off * off
        inverse = fill(ws, 1.0) / root(sums / count + fill(ws, op.eps))
        store(ws, kept + 2 * g * far, mean)
        store(ws, kept + (2 * g + 1) * far, inverse)
        for c in range(low, high):
            scale, shift = inverse, fill(ws, 0.0)
            if gamma >= 0:
                scale, shift = inverse * spread(par, gamma + c), spread(par, beta + c)
            for i in range(c * stride, c * stride + inner * lanes, lanes):
                store(ws, out + i, (load(ws, x + i) - mean) * scale + shift)


@inner
def group_norm_back(
    op: Any, par: Any, ws: Any, x: int, stride: int, inner: int, dy: int, dx: int, kept: int, far: int
) -> None:
    """dx, and the gradients of gamma and beta added to sums [2, channels, lanes]."""
    lanes = width(ws)
    groups, depth, gamma, sums = op.groups, op.channels // op.groups, op.gamma, op.sums
    channels = op.channels
    for g in range(groups):
        mean, inverse = load(ws, kept + 2 * g * far), load(ws, kept + (2 * g + 1) * far)
        whole, along = fill(ws, 0.0), fill(ws, 0.0)
        for c in range(g * depth, (g + 1) * depth):
            plain, product = fill(ws, 0.0), fill(ws, 0.0)
            for i in range(c * stride, c * stride + inner * lanes, lanes):
                d = load(ws, dy + i)
                plain = plain + d
                product = product + d * (load(ws, x + i) - mean)
            product = product * inverse
            if gamma >= 0:
                store(ws, sums + c * lanes, load(ws, sums + c * lanes) + product)
                store(ws, sums + (channels + c) * lanes, load(ws, sums + (channels + c) * lanes) + plain)
                plain, product = plain * spread(par, gamma + c), product * spread(par, gamma + c)
            whole, along = whole + plain, along + product
        share = fill(ws, depth * inner)
        level, slope = inverse * whole / share, inverse * inverse * along / share
        for c in range(g * depth, (g + 1) * depth):
            scale = inverse
            if gamma >= 0:
                scale = inverse * spread(par, gamma + c)
            for i in range(c * stride, c * stride + inner * lanes, lanes):
                d = load(ws, dy + i) * scale - level
                store(ws, dx + i, d - (load(ws, x + i) - mean) * slope)


@inner
def cross_entropy(
    ws: Any, at: int, dy: int, stride: int, classes: int, targets: Any, first: int, count: int, scale: float
) -> Any:
    """The sum of the losses and the number of right predictions of `count` samples from `first` on.

    The number is far below 0 if a target is none of the classes. The gradients of the losses, times `scale`, go to
    `dy`; those of missing samples are 0.
    """
    loss, right = 0.0, 0
    stop = min(len(targets) - first, count)
    for s in range(stop):
        target = targets[first + s]
        if target < 0 or target >= classes:
            return loss, -len(targets) - 1
        best, most = 0, ws[at + s]
        for c in range(1, classes):
            value = ws[at + c * stride + s]
            if value > most or (value != value and most == most):
                best, most = c, value
        right += best == target
        mass = 0.0
        for c in range(classes):
            share = math.exp(float(ws[at + c * stride + s]) - most)
            ws[dy + c * stride + s] = share
            mass += share
        loss += math.log(mass) + most - ws[at + target * stride + s]
        for c in range(classes):
            ws[dy + c * stride + s] *= scale / mass
        ws[dy + target * stride + s] -= scale
    for s in range(stop, count):
        for c in range(classes):
            ws[dy + c * stride + s] = 0.0
    return loss, right


@inner
def finish_gradient(par: Any, grad: Any, clip: float, decay: float) -> Any:
    """Scale the gradient down to the norm `clip` and add `decay` times the parameters; returns its sum and its norm.

    Both are those before that.
    """
    lanes = width(grad)
    whole = len(grad) - len(grad) % lanes
    sums, squares = fill(grad, 0.0), fill(grad, 0.0)
    for i in range(0, whole, lanes):
        own = load(grad, i)
        sums, squares = sums + own, fma(own, own, squares)
    plain, square = float(total(sums)), float(total(squares))
    for i in range(whole, len(grad)):
        plain, square = plain + grad[i], square + grad[i] * grad[i]
    norm = math.sqrt(square)
    scale = clip / norm if norm > clip else 1.0
    if scale != 1.0 or decay != 0.0:
        for i in range(0, whole, lanes):
            store(grad, i, fma(load(par, i), fill(grad, decay), load(grad, i) * fill(grad, scale)))
        for i in range(whole, len(grad)):
            grad[i] = grad[i] * scale + par[i] * decay
    return plain, norm


@inner
def transpose(ws: Any, at: int, stride: int, features: int, samples: int, to: int, panel: int) -> None:
    """Features of samples [features, stride] as panels [features / panel, samples, panel].

    `stride`, `panel` and the room behind the last panel are whole vectors.
    """
    lanes = width(ws)
    for first in range(0, features, panel):
        last = min(first + panel, features)
        for s in range(0, samples, lanes):
            for f in range(first, last, lanes):
                turn_square(ws, at + f * stride + s, stride, to + s * panel + f - first, panel)
        to += samples * panel
