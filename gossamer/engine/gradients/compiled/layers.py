"""The layers of a chain, forward and backward, on one block of samples.

A block is as many samples as a vector has lanes. Its numbers are in the workspace `ws` as vectors of samples: `x` or
`at` is where they begin, `stride` how far one channel is from the next, and the vectors of one channel are neighbours.
Convolutions read lines that are `pitch` apart, with zeros beside each line where there is padding.
"""

import math
from typing import Any

from numba import int64

from gossamer.engine.gradients.compiled.compilation import inner
from gossamer.engine.gradients.compiled.tiles import correlate as _correlate
from gossamer.engine.gradients.compiled.tiles import outer as _outer
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
    width,
)


@inner
def products(
    rows: int, columns: int, left: Any, a: int, a_row: int, ws: Any, b: int, b_column: int, loops: Any,
    out: Any, to: int, row: int, column: int, count: int,
) -> None:  # fmt: skip
    """See `tiles.correlate`, for any number of rows and at most four columns."""
    done = 0
    while done < rows:
        tall, rest = 1, rows - done
        if columns == 4:
            tall = 3 if rest >= 3 else rest
        elif columns == 3:
            tall = 4 if rest >= 4 else (2 if rest >= 2 else 1)
        elif columns == 2:
            tall = 6 if rest >= 6 else (3 if rest >= 3 else 1)
        else:
            tall = 8 if rest >= 8 else (4 if rest >= 4 else 1)
        _correlate(
            tall, columns, left, a + done * a_row, a_row, ws, b, b_column, loops, out, to + done * row, row, column,
            count,
        )  # fmt: skip
        done += tall


@inner
def next_strip(left: int, widest: int) -> int:
    """How many of the `left` columns the next tile takes."""
    if left <= widest:
        return left
    return widest - 1 if left == widest + 1 and widest > 2 else widest


@inner
def convolution_line(op: Any, par: Any, ws: Any, x: int, line: int, to: int, plane: int) -> None:
    """One line of all output channels, `plane` apart."""
    lanes = width(ws)
    low = max(0, op.padding_y - line * op.stride_y)
    high = min(op.kernel_y, op.rows + op.padding_y - line * op.stride_y)
    source = x + (line * op.stride_y - op.padding_y + low) * op.pitch * lanes
    area = op.rows * op.pitch * lanes
    weight = op.weight + low * op.weight_y
    lines, taps = (high - low, op.weight_y, op.pitch * lanes), (op.kernel_x, op.weight_x, lanes)
    channels = (op.channels, op.weight_in, area)
    # The longest loop is the innermost one.
    loops = (channels, lines, taps) if op.kernel_x >= op.channels else (lines, taps, channels)
    column = 0
    while column < op.out_columns:
        left = op.out_columns - column
        wide = next_strip(left, op.tile)
        count = 1
        if wide == op.tile:
            # All whole tiles at once; one column more than they take is shared by the last two.
            count = max(1, left // wide - (1 if left % wide == 1 else 0))
        at = source + column * op.stride_x * lanes
        products(
            op.outs, wide, par, weight, op.weight_out, ws, at, op.stride_x * lanes, loops,
            ws, to + column * lanes, plane, lanes, count,
        )  # fmt: skip
        column += wide * count


@inner
def convolution(op: Any, par: Any, ws: Any, x: int, y: int) -> None:
    """All lines."""
    row = op.out_columns * width(ws)
    for line in range(op.out_rows):
        convolution_line(op, par, ws, x, line, y + line * row, op.out_rows * row)


@inner
def convolution_and_pool(op: Any, par: Any, ws: Any, x: int, y: int, index: int) -> None:
    """A convolution, the maxima of windows that do not overlap, bias and ReLU: a line of maxima at a time."""
    lanes = width(ws)
    row = op.out_columns * lanes
    for line in range(op.pool_rows):
        for r in range(op.pool_y):
            convolution_line(op, par, ws, x, line * op.pool_stride_y + r, op.scratch + r * row, op.pool_y * row)
        for c in range(op.outs):
            at = (c * op.pool_rows + line) * op.pool_columns * lanes
            own = float(par[op.bias + c]) if op.bias >= 0 else 0.0
            pool_line(op, ws, op.scratch + c * op.pool_y * row, row, own, y + at, index + at)


@inner
def pool_line(op: Any, ws: Any, rows: int, row: int, own: float, out: int, index: int) -> None:
    """The maxima of windows over lines of vectors, `row` apart, then bias and ReLU; -1 is the index of a zero."""
    lanes = width(ws)
    high, wide, step, rectified = op.pool_y, op.pool_x, op.pool_stride_x * lanes, op.rectified
    shift = fill(ws, own)
    for c in range(op.pool_columns):
        at = rows + c * step
        best, chosen = load(ws, at), fill(ws, 0.0)
        if high == 2 and wide == 2:
            # The usual windows, without the loops.
            value = load(ws, at + lanes)
            chosen, best = place(best, value, chosen, fill(ws, 1.0)), larger(best, value)
            value = load(ws, at + row)
            chosen, best = place(best, value, chosen, fill(ws, 2.0)), larger(best, value)
            value = load(ws, at + row + lanes)
            chosen, best = place(best, value, chosen, fill(ws, 3.0)), larger(best, value)
        else:
            for k in range(1, high * wide):
                value = load(ws, at + k // wide * row + k % wide * lanes)
                chosen, best = place(best, value, chosen, fill(ws, k)), larger(best, value)
        best = best + shift
        if rectified:
            best = relu(best)
            chosen = closed(best, chosen, fill(ws, -1.0))
        store(ws, out + c * lanes, best)
        store(ws, index + c * lanes, chosen)


@inner
def pool_back(op: Any, ws: Any, index: int) -> None:
    """Write the gradients of the maxima to where they came from, in `dz`, and add them to the bias's sums."""
    lanes = width(ws)
    pitch = op.dz_pitch * lanes
    for c in range(op.outs):
        acc = load(ws, op.bias_sums + c * lanes)
        for line in range(op.pool_rows):
            at = (c * op.pool_rows + line) * op.pool_columns * lanes
            for i in range(at, at + op.pool_columns * lanes, lanes):
                acc = acc + gate(load(ws, index + i) + fill(ws, 0.5), load(ws, op.dy + i))
            for a in range(op.pool_y):
                for b in range(op.pool_x):
                    number = fill(ws, a * op.pool_x + b)
                    to = op.dz + (c * op.out_rows + line * op.pool_stride_y + a) * pitch + b * lanes
                    for i in range(op.pool_columns):
                        chosen, own = load(ws, index + at + i * lanes), load(ws, op.dy + at + i * lanes)
                        store(ws, to + i * op.pool_stride_x * lanes, only(chosen, number, own))
        store(ws, op.bias_sums + c * lanes, acc)


@inner
def copy_lines(ws: Any, at: int, pitch: int, to: int, to_pitch: int, lines: int, columns: int) -> None:
    """`lines` lines of `columns` vectors."""
    lanes = width(ws)
    for line in range(lines):
        for c in range(columns):
            store(ws, to + (line * to_pitch + c) * lanes, load(ws, at + (line * pitch + c) * lanes))


@inner
def weight_gradient(op: Any, ws: Any, x: int) -> None:
    """Add the products of inputs and gradients `dz` to sums [out, in, y, x, lanes]."""
    lanes = width(ws)
    area, row = op.rows * op.pitch * lanes, op.pitch * lanes
    dz_row = op.dz_pitch * lanes
    plane = op.out_rows * dz_row
    per_filter = op.channels * op.kernel_y * op.kernel_x * lanes
    is_dot = op.kernel_y == 1 and op.kernel_x == 1  # then the taps of a tile are channels
    taps, tap = (op.channels, area) if is_dot else (op.kernel_x, lanes)
    first = 0
    while first < taps:
        wide = next_strip(taps - first, 4 if is_dot else op.taps)
        o = 0
        while o < op.outs:
            tall, rest = 1, op.outs - o
            if wide == 5:
                tall = 2 if rest >= 2 else 1
            elif wide == 4:
                tall = 3 if rest >= 3 else 1
            elif wide == 3:
                tall = 4 if rest >= 4 else (2 if rest >= 2 else 1)
            else:
                tall = 4 if rest >= 4 else 1
            for i in range(1 if is_dot else op.channels):
                for k in range(op.kernel_y):
                    # From the first line whose source is inside, to the last.
                    upper = max(0, -((k - op.padding_y) // op.stride_y))
                    lower = min(op.out_rows, (op.rows - 1 + op.padding_y - k) // op.stride_y + 1)
                    if upper < lower:
                        source = x + i * area + (upper * op.stride_y - op.padding_y + k) * row + first * tap
                        loops = (
                            (1, 0, 0),
                            (lower - upper, dz_row, op.stride_y * row),
                            (op.out_columns, lanes, op.stride_x * lanes),
                        )
                        to = op.sums + o * per_filter + ((i * op.kernel_y + k) * op.kernel_x + first) * lanes
                        _outer(
                            tall, wide, ws, op.dz + o * plane + upper * dz_row, plane, ws, source, tap, loops,
                            ws, to, per_filter, lanes, int64(1),
                        )  # fmt: skip
            o += tall
        first += wide


@inner
def input_gradient(op: Any, par: Any, ws: Any, dx: int) -> None:
    """The gradient of a convolution's input [channels, rows, columns]."""
    lanes = width(ws)
    plane = op.rows * op.columns * lanes
    dz_row = op.dz_pitch * lanes
    filters = (op.outs, op.weight_out, op.out_rows * dz_row)
    for line in range(op.rows):
        # Output line (line + padding - k) / stride, for every k that makes it a whole one, from the last one back.
        low = max((line + op.padding_y) % op.stride_y, line + op.padding_y - (op.out_rows - 1) * op.stride_y)
        high = min(op.kernel_y, line + op.padding_y + 1)
        count = max(0, -(-(high - low) // op.stride_y))
        lines = (count, op.stride_y * op.weight_y, -dz_row)
        top = (line + op.padding_y - low) // op.stride_y
        for phase in range(op.stride_x):
            # The columns c * stride + first see the taps phase, phase + stride, ... of output columns c + start - tap.
            first = (phase - op.padding_x) % op.stride_x
            start = (first + op.padding_x - phase) // op.stride_x
            taps = max(0, -(-(op.kernel_x - phase) // op.stride_x))
            columns = max(0, -(-(op.columns - first) // op.stride_x))
            c = 0
            while c < columns:
                wide = next_strip(columns - c, op.back_tile)
                # Taps that no column of the tile needs are left out; zeros beside the lines stand for the others.
                least, most = max(0, c + start - (op.out_columns - 1)), min(taps, c + start + wide)
                used = max(0, most - least)
                across = (used, op.stride_x * op.weight_x, -lanes)
                loops = (lines, across, filters) if op.outs > used else (filters, lines, across)
                weight = op.weight + low * op.weight_y + (phase + least * op.stride_x) * op.weight_x
                at = op.dz + top * dz_row + (c + start - least) * lanes
                to = dx + (line * op.columns + first + c * op.stride_x) * lanes
                products(
                    op.channels, wide, par, weight, op.weight_in, ws, at, lanes, loops,
                    ws, to, plane, op.stride_x * lanes, int64(1),
                )  # fmt: skip
                c += wide


@inner
def clear(ws: Any, at: int, numbers: int) -> None:
    """Zeros."""
    for i in range(at, at + numbers):
        ws[i] = 0.0


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
    for i in range(count):
        gradient[start + i] = total(load(ws, sums + i * width(ws)))


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
                        i, j = (
                            y * op.stride_y - op.padding_y + a * op.dilation_y,
                            z * op.stride_x - op.padding_x + b * op.dilation_x,
                        )
                        if 0 <= i < op.rows and 0 <= j < op.columns:
                            value = load(ws, x + ((c * op.rows + i) * op.columns + j) * lanes)
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
                        i, j = (
                            y * op.stride_y - op.padding_y + a * op.dilation_y,
                            z * op.stride_x - op.padding_x + b * op.dilation_x,
                        )
                        if 0 <= i < op.rows and 0 <= j < op.columns:
                            to = dx + ((c * op.rows + i) * op.columns + j) * lanes
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
    """Features of samples [features, stride] as panels [features / panel, samples, panel]."""
    for first in range(0, features, panel):
        for f in range(first, min(first + panel, features)):
            for s in range(samples):
                ws[to + s * panel + f - first] = ws[at + f * stride + s]
        to += samples * panel


@inner
def unpack(op: Any, ws: Any, gradient: Any) -> None:
    """Add up the lanes of a convolution's weight gradients [out, in, y, x, lanes]."""
    at = op.sums
    for o in range(op.outs):
        for i in range(op.channels):
            for y in range(op.kernel_y):
                for x in range(op.kernel_x):
                    to = op.weight + o * op.weight_out + i * op.weight_in + y * op.weight_y + x * op.weight_x
                    gradient[to] = total(load(ws, at))
                    at += width(ws)
