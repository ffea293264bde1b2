"""Convolutions of one block of samples, alone or with the max pooling, bias and ReLU that follow, and their gradients.

See `layers` for the layout. Convolutions read lines that are `pitch` apart, with zeros beside each line where there is
padding.
"""

from typing import Any

from numba import int64

from gossamer.engine.gradients.compiled.compilation import inner
from gossamer.engine.gradients.compiled.tiles import correlate, outer
from gossamer.engine.gradients.compiled.vectors import (
    closed,
    fill,
    gate,
    larger,
    load,
    only,
    place,
    relu,
    store,
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
        correlate(
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
def pool_back(op: Any, ws: Any, index: int, dz: int) -> None:
    """Write the gradients of the maxima to where they came from, in `dz`, and add them to the bias's sums."""
    lanes = width(ws)
    row, step, high, wide = op.dz_pitch * lanes, op.pool_stride_x * lanes, op.pool_y, op.pool_x
    at = 0
    for c in range(op.outs):
        acc = load(ws, op.bias_sums + c * lanes)
        for line in range(op.pool_rows):
            to = dz + (c * op.out_rows + line * op.pool_stride_y) * row
            for _ in range(op.pool_columns):
                chosen, own = load(ws, index + at), load(ws, op.dy + at)
                acc = acc + gate(chosen + fill(ws, 0.5), own)
                if high == 2 and wide == 2:
                    # The usual windows, without the loops.
                    store(ws, to, only(chosen, fill(ws, 0.0), own))
                    store(ws, to + lanes, only(chosen, fill(ws, 1.0), own))
                    store(ws, to + row, only(chosen, fill(ws, 2.0), own))
                    store(ws, to + row + lanes, only(chosen, fill(ws, 3.0), own))
                else:
                    for k in range(high * wide):
                        store(ws, to + k // wide * row + k % wide * lanes, only(chosen, fill(ws, k), own))
                at += lanes
                to += step
        store(ws, op.bias_sums + c * lanes, acc)


@inner
def copy_lines(ws: Any, at: int, pitch: int, to: int, to_pitch: int, lines: int, columns: int) -> None:
    """`lines` lines of `columns` vectors."""
    lanes = width(ws)
    for line in range(lines):
        for c in range(columns):
            store(ws, to + (line * to_pitch + c) * lanes, load(ws, at + (line * pitch + c) * lanes))


@inner
def weight_gradient(op: Any, ws: Any, x: int, dz: int, blocks: int, x_block: int, dz_block: int) -> None:
    """Add the products of inputs and gradients `dz` to sums, which are laid out as the weights are.

    The inputs of so many blocks are `x_block` apart, and their gradients `dz_block`.
    """
    lanes = width(ws)
    area, row = op.rows * op.pitch * lanes, op.pitch * lanes
    dz_row = op.dz_pitch * lanes
    plane = op.out_rows * dz_row
    is_dot = op.kernel_y == 1 and op.kernel_x == 1  # then the taps of a tile are channels
    taps, tap, weight_tap = (op.channels, area, op.weight_in) if is_dot else (op.kernel_x, lanes, op.weight_x)
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
                            (blocks, dz_block, x_block),
                            (lower - upper, dz_row, op.stride_y * row),
                            (op.out_columns, lanes, op.stride_x * lanes),
                        )
                        weight = o * op.weight_out + i * op.weight_in + k * op.weight_y + first * weight_tap
                        outer(
                            tall, wide, ws, dz + o * plane + upper * dz_row, plane, ws, source, tap, loops,
                            ws, op.sums + weight * lanes, op.weight_out * lanes, weight_tap * lanes, int64(1),
                        )  # fmt: skip
            o += tall
        first += wide


@inner
def input_gradient(op: Any, par: Any, ws: Any, dz: int, dx: int) -> None:
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
                at = dz + top * dz_row + (c + start - least) * lanes
                to = dx + (line * op.columns + first + c * op.stride_x) * lanes
                products(
                    op.channels, wide, par, weight, op.weight_in, ws, at, lanes, loops,
                    ws, to, plane, op.stride_x * lanes, int64(1),
                )  # fmt: skip
                c += wide
