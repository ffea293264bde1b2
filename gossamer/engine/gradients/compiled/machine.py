"""Run a chain: the operations of its program, forward and backward, over blocks of samples.

Layers in front of the flatten ("images") run block by block, so that a block stays in the cache from one layer to the
next. The layers behind it ("rows") run on several blocks at once: a row holds one number of every sample of the batch.
"""

from typing import Any

from numba import int64

from gossamer.engine.gradients.compiled import convolution, layers
from gossamer.engine.gradients.compiled.compilation import entry, inlined, inner
from gossamer.engine.gradients.compiled.program import (
    BIAS,
    CONVOLUTION,
    GROUP_NORM,
    LINEAR,
    MAX_POOL,
    MEAN_POOL,
    OPERATION,
    PANEL,
    RELU,
)
from gossamer.engine.gradients.compiled.vectors import (
    add_at_once,
    backwards,
    fill,
    load,
    read,
    store,
    turn_square,
    width,
)


@inner
def arrange(
    inputs: Any, index: Any, moves: Any, boxes: Any, padding: int, flip: bool, scale: Any, shift: Any, margin: int,
    first: int, ws: Any, at: int, lines: int,
) -> None:  # fmt: skip
    """Write the samples `index` of `inputs` [n, channels, height, width] from `first` on as a block.

    A block is [channels, height, pitch, lanes], and lines have `margin` zeros on both sides. On the way samples are
    cropped and flipped by `moves` [B, 3] (if there are any), normalized to x * scale - shift, and erased inside `boxes`
    [B, 4] (if there are any). The last sample stands in for those that are missing. One line of every sample is written
    to `lines`, and these are then transposed; up to a vector less than a square of numbers behind the block is used.
    """
    lanes = width(ws)
    _, channels, height, wide = inputs.shape
    pitch = wide + 2 * margin
    room = -(-pitch // lanes) * lanes
    pixels = inputs.reshape(-1)
    zero = scale.dtype.type(0)
    if height == 1 and pitch == 1:
        arrange_vectors(pixels, index, scale, shift, first, ws, at, lines)
        return
    layers.clear(ws, lines, room * lanes)
    for c in range(channels):
        factor, offset = scale[c], shift[c]
        empty = zero * factor - offset
        for y in range(height):
            for k in range(lanes):
                sample = min(first + k, len(index) - 1)
                line, source = lines + k * room + margin, y
                right, mirrored = 0, False
                if len(moves):
                    size = moves.dtype.type(2 * padding + 1)
                    source += int(moves[sample, 0] * size) - padding
                    right = int(moves[sample, 1] * size) - padding
                    mirrored = flip and moves[sample, 2] < 0.5
                low, high = 0, 0
                if 0 <= source < height:
                    # The columns that lie inside the image. It is mirrored after it is cropped.
                    low = max(0, right) if mirrored else max(0, -right)
                    high = min(wide, wide + right) if mirrored else min(wide, wide - right)
                start = ((index[sample] * channels + c) * height + source) * wide
                for x in range(low):
                    ws[line + x] = empty
                copy_line(pixels, start + right, wide, mirrored, low, high, factor, offset, ws, line)
                for x in range(high, wide):
                    ws[line + x] = empty
                if len(boxes) and boxes[sample, 0] <= y < boxes[sample, 0] + boxes[sample, 2]:
                    for x in range(boxes[sample, 1], boxes[sample, 1] + boxes[sample, 3]):
                        ws[line + x] *= zero
            for x in range(0, pitch, lanes):
                turn_square(ws, lines + x, room, at + x * lanes, lanes)
            at += pitch * lanes


@inner
def arrange_vectors(pixels: Any, index: Any, scale: Any, shift: Any, first: int, ws: Any, at: int, lines: int) -> None:
    """The same for samples that are vectors, every number of which is a channel."""
    lanes, channels = width(ws), len(scale)
    whole = channels - channels % lanes
    for k in range(lanes):
        start = index[min(first + k, len(index) - 1)] * channels
        for c in range(whole, channels):
            ws[at + c * lanes + k] = scale.dtype.type(pixels[start + c]) * scale[c] - shift[c]
    for c in range(0, whole, lanes):
        for k in range(lanes):
            start = index[min(first + k, len(index) - 1)] * channels + c
            store(ws, lines + k * lanes, read(ws, pixels, start) * load(scale, c) - load(shift, c))
        turn_square(ws, lines, lanes, at + c * lanes, lanes)


@inlined
def copy_line(
    pixels: Any, start: int, wide: int, mirrored: bool, low: int, high: int, factor: float, offset: float, ws: Any,
    line: int,
) -> None:  # fmt: skip
    """ws[line + x] = pixels[start + x] * factor - offset for low <= x < high, or of pixels[start + wide - 1 - x]."""
    lanes = width(ws)
    scale, shift = fill(ws, factor), fill(ws, offset)
    if high - low >= lanes:
        for x in range(low, high, lanes):
            here = min(x, high - lanes)  # the last vector overlaps with the one before
            if mirrored:
                own = backwards(read(ws, pixels, start + wide - here - lanes))
            else:
                own = read(ws, pixels, start + here)
            store(ws, line + here, own * scale - shift)
    else:
        for x in range(low, high):
            ws[line + x] = pixels[start + wide - 1 - x if mirrored else start + x]
            ws[line + x] = ws[line + x] * factor - offset


@inlined
def image_forward(op: Any, par: Any, ws: Any, x: int, z: int) -> None:
    """One layer on one block. `x` is where its input begins, `z` where the block's other numbers do."""
    lanes = width(ws)
    area = op.rows * op.columns
    if op.kind == CONVOLUTION:
        if op.padded >= 0:
            convolution.copy_lines(
                ws, x, op.columns, z + op.padded + op.padding_x * lanes, op.pitch, op.channels * op.rows, op.columns
            )
            x = z + op.padded
        if op.pool_rows:
            convolution.convolution_and_pool(op, par, ws, x, z + op.y, z + op.kept)
        else:
            convolution.convolution(op, par, ws, x, z + op.y)
    elif op.kind == BIAS:
        layers.bias(ws, x, area * lanes, op.channels, area, par, op.bias)
    elif op.kind == RELU:
        layers.rectify(ws, x, area * lanes, op.channels, area)
    elif op.kind == MAX_POOL:
        layers.max_pool(op, ws, x, z + op.y, z + op.kept)
    elif op.kind == MEAN_POOL:
        layers.mean_pool(op, ws, x, z + op.y)
    elif op.kind == GROUP_NORM:
        layers.group_norm(op, par, ws, x, area * lanes, area, z + op.y, z + op.kept, lanes)


@inlined
def image_backward(op: Any, par: Any, ws: Any, x: int, z: int) -> None:
    """The gradients of one layer on one block, from `op.dy` to `op.dx`."""
    lanes = width(ws)
    area = op.rows * op.columns
    if op.kind == CONVOLUTION:
        dz = z + op.dz if op.gathered else op.dz
        if op.pool_rows:
            if op.scattered:
                layers.clear(ws, dz, (op.outs * op.out_rows * op.dz_pitch) * lanes)
            convolution.pool_back(op, ws, z + op.kept, dz)
        elif dz != op.dy:
            convolution.copy_lines(ws, op.dy, op.out_columns, dz, op.dz_pitch, op.outs * op.out_rows, op.out_columns)
        if not op.gathered:
            convolution.weight_gradient(
                op, ws, z + op.padded if op.padded >= 0 else x, dz, int64(1), int64(0), int64(0)
            )
        if op.dx >= 0:
            convolution.input_gradient(op, par, ws, dz, op.dx)
    elif op.kind == BIAS:
        layers.bias_back(ws, op.dy, area * lanes, op.channels, area, op.sums)
    elif op.kind == RELU:
        layers.rectify_back(ws, x, op.dy, area * lanes, op.channels, area)
    elif op.kind == MAX_POOL:
        layers.max_pool_back(op, ws, op.dx, op.dy, z + op.kept)
    elif op.kind == MEAN_POOL:
        layers.mean_pool_back(op, ws, op.dx, op.dy)
    elif op.kind == GROUP_NORM:
        layers.group_norm_back(op, par, ws, x, area * lanes, area, op.dy, op.dx, z + op.kept, lanes)


@inlined
def gathered_gradient(op: Any, ws: Any, inputs: int, input_block: int, z: int, block: int, blocks: int) -> None:
    """The gradient of a convolution's weights over several blocks: the sums stay in registers from one to the next."""
    at, far = (inputs, input_block) if op.x < 0 else (z + op.x, block)
    if op.padded >= 0:
        at, far = z + op.padded, block
    convolution.weight_gradient(op, ws, at, z + op.dz, blocks, far, block)


@inner
def matrix_product(
    left: Any, a: int, a_row: int, a_next: int, rows: int, ws: Any, b: int, b_next: int, columns: int, count: int,
    out: Any, to: int, row: int,
) -> None:  # fmt: skip
    """out[to + r * row + c] = sum over k < count of left[a + r * a_row + k * a_next] * ws[b + k * b_next + c].

    `columns` are counted in vectors.
    """
    lanes = width(ws)
    loops = ((int64(1), int64(0), int64(0)), (int64(1), int64(0), int64(0)), (count, a_next, b_next))
    done = 0
    while done < columns:
        wide = convolution.next_strip(columns - done, int64(4))
        convolution.products(
            rows, wide, left, a, a_row, ws, b + done * lanes, lanes, loops, out, to + done * lanes, row, lanes,
            int64(1),
        )  # fmt: skip
        done += wide


@inlined
def rows_forward(op: Any, par: Any, ws: Any, v: int, stride: int, wide: int) -> None:
    """One layer on `wide` blocks, whose first row begins at `v`; rows are `stride` apart."""
    lanes = width(ws)
    x, y = v + op.x * stride, v + op.y * stride
    if op.kind == LINEAR:
        matrix_product(par, op.weight, op.channels, int64(1), op.outs, ws, x, stride, wide, op.channels, ws, y, stride)
    elif op.kind == BIAS:
        layers.bias(ws, x, stride, op.channels, wide, par, op.bias)
    elif op.kind == RELU:
        layers.rectify(ws, x, stride, op.channels, wide)
    elif op.kind == GROUP_NORM:
        for q in range(0, wide * lanes, lanes):
            layers.group_norm(op, par, ws, x + q, stride, int64(1), y + q, v + op.kept * stride + q, stride)


@inlined
def rows_backward(op: Any, par: Any, ws: Any, v: int, stride: int, wide: int) -> None:
    """The gradients of one layer's inputs on `wide` blocks."""
    lanes = width(ws)
    x, dy, dx = v + op.x * stride, v + op.dy * stride, v + op.dx * stride
    if op.kind == LINEAR:
        if op.dx >= 0:
            matrix_product(
                par, op.weight, int64(1), op.channels, op.channels, ws, dy, stride, wide, op.outs, ws, dx, stride
            )
    elif op.kind == BIAS:
        layers.bias_back(ws, dy, stride, op.channels, wide, op.sums)
    elif op.kind == RELU:
        layers.rectify_back(ws, x, dy, stride, op.channels, wide)
    elif op.kind == GROUP_NORM:
        for q in range(0, wide * lanes, lanes):
            layers.group_norm_back(
                op, par, ws, x + q, stride, int64(1), dy + q, dx + q, v + op.kept * stride + q, stride
            )


@inner
def linear_gradient(op: Any, grad: Any, ws: Any, v: int, stride: int, samples: int) -> None:
    """The gradient of a linear layer's weights [outs, ins] over the whole batch."""
    lanes = width(ws)
    panel = PANEL * lanes
    dy, turned = v + op.dy * stride, v + op.turned * stride
    layers.transpose(ws, v + op.x * stride, stride, op.channels, samples, turned, panel)
    for first in range(0, op.channels, panel):
        at, rest = turned + first * samples, min(panel, op.channels - first)
        whole = rest // lanes
        if whole:
            matrix_product(
                ws, dy, stride, int64(1), op.outs, ws, at, panel, whole, samples, grad, op.weight + first, op.channels
            )
        if rest % lanes:
            # A vector would reach into the next row.
            matrix_product(
                ws,
                dy,
                stride,
                int64(1),
                op.outs,
                ws,
                at + whole * lanes,
                panel,
                int64(1),
                samples,
                ws,
                op.scratch,
                lanes,
            )
            for o in range(op.outs):
                for i in range(rest % lanes):
                    grad[op.weight + o * op.channels + first + whole * lanes + i] = ws[op.scratch + o * lanes + i]


@inlined
def finish(op: Any, grad: Any, ws: Any) -> None:
    """Add up the lanes of the sums that a layer has kept, into the gradient."""
    lanes = width(ws)
    if op.kind == CONVOLUTION:
        layers.lanes_sum(ws, op.sums, op.outs * op.weight_out, grad, op.weight)
        if op.bias >= 0:
            layers.lanes_sum(ws, op.bias_sums, op.outs, grad, op.bias)
    elif op.kind == BIAS:
        layers.lanes_sum(ws, op.sums, op.channels, grad, op.bias)
    elif op.kind == GROUP_NORM and op.gamma >= 0:
        layers.lanes_sum(ws, op.sums, op.channels, grad, op.gamma)
        layers.lanes_sum(ws, op.sums + op.channels * lanes, op.channels, grad, op.beta)


@inner
def run(
    images: Any, rows: Any, sizes: Any, par: Any, grad: Any, bytes: Any, numbers: Any, source: Any, fresh: bool,
    targets: Any, scale: float, train: bool, ws: Any,
) -> Any:  # fmt: skip
    """The sum of the losses and the number of right predictions of a batch; if `train`, `grad` becomes the gradient.

    The batch's inputs are arranged as `source` says if it is `fresh`; else they are still there. The number is negative
    if a target is not a class.
    """
    lanes = width(ws)
    first_block, block, count, input_block, outputs, output_dy, classes, together = sizes[:8]
    sums, end_of_sums, image_dy, row_dy, margin, lines, pixels = sizes[8:]
    samples = len(targets)
    blocks = -(-samples // lanes)
    turns = -(-blocks // together)
    stride = blocks * lanes
    v = pixels + blocks * input_block + lanes * lanes
    loss, right = 0.0, 0
    if train:
        layers.clear(ws, sums, end_of_sums - sums)
    for turn in range(turns):
        low, high = turn * blocks // turns, (turn + 1) * blocks // turns
        start, wide = v + low * lanes, high - low
        for q in range(low, high):
            z, own = first_block + (q - low) * block, pixels + q * input_block
            if fresh and len(bytes):
                arrange(bytes, *source, margin, q * lanes, ws, own, lines)
            elif fresh:
                arrange(numbers, *source, margin, q * lanes, ws, own, lines)
            x = own
            for k in range(len(images)):
                x = own if images[k].x < 0 else z + images[k].x
                image_forward(images[k], par, ws, x, z)
                if images[k].y >= 0:
                    x = z + images[k].y
            for i in range(count):
                store(ws, v + q * lanes + i * stride, load(ws, x + i * lanes))
        for k in range(len(rows)):
            rows_forward(rows[k], par, ws, start, stride, wide)
        more, found = layers.cross_entropy(
            ws, start + outputs * stride, start + output_dy * stride, stride, classes, targets, low * lanes,
            wide * lanes, scale,
        )  # fmt: skip
        loss += more
        right += found
        if train:
            for k in range(len(rows) - 1, -1, -1):
                if rows[k].back:
                    rows_backward(rows[k], par, ws, start, stride, wide)
            if row_dy >= 0:
                for q in range(low, high):
                    z, own = first_block + (q - low) * block, pixels + q * input_block
                    for i in range(count):
                        store(ws, image_dy + i * lanes, load(ws, v + q * lanes + (row_dy + i) * stride))
                    for k in range(len(images) - 1, -1, -1):
                        if images[k].back:
                            image_backward(images[k], par, ws, own if images[k].x < 0 else z + images[k].x, z)
                for k in range(len(images)):
                    if images[k].gathered:
                        gathered_gradient(
                            images[k], ws, pixels + low * input_block, input_block, first_block, block, wide
                        )
    if train:
        for k in range(len(images)):
            finish(images[k], grad, ws)
        for k in range(len(rows)):
            finish(rows[k], grad, ws)
            if rows[k].kind == LINEAR:
                linear_gradient(rows[k], grad, ws, v, stride, samples)
    return loss, right


LINGERING = 500_000
"""How often a thread looks for more work before it sleeps: for about a millisecond."""


@entry
def compute(
    images: Any, rows: Any, sizes: Any, x: Any, grad: Any, bytes: Any, numbers: Any, index: Any, starts: Any,
    moves: Any, boxes: Any, padding: int, flip: bool, scale: Any, shift: Any, targets: Any, weights: Any, train: bool,
    clip: float, decay: float, counters: Any, generation: Any, seen: int, ws: Any, found: Any,
) -> None:  # fmt: skip
    """The mean losses and the numbers of right predictions of models x [G, d], and their gradients if `train`.

    Model k sees the samples index[starts[k]:starts[k + 1]], or all see the same ones if there are no more `starts`.
    Samples are in `bytes` or in `numbers`, and the other one is empty; `moves`, `boxes` and what follows: see
    `arrange`. The gradients are those of weights[k] * loss, clipped, with weight decay. found[k] becomes (loss, right,
    sum and norm of the gradient before clipping).

    Several threads may call this at once for the same models: each takes the next one by counters[0] until none is
    left. With a negative `seen` it returns when all models are done, which counters[1] counts: nobody has to ask Python
    whether the other threads have ended. Else it waits a moment for generation[0] to be another than `seen`.
    """
    # Numba takes milliseconds to look at an array of records, but no time for one of numbers.
    image_operations, row_operations = images.view(OPERATION), rows.view(OPERATION)
    fresh, k = True, add_at_once(counters, 0, 1)
    while k < len(x):
        batch = min(k, len(starts) - 2)
        low, high = starts[batch], starts[batch + 1]
        source = (index[low:high], moves[low:high], boxes[low:high], padding, flip, scale, shift)
        samples = high - low
        loss, right = run(
            image_operations, row_operations, sizes, x[k], grad[k], bytes, numbers, source, fresh,
            targets[index[low:high]], weights[k] / samples, train, ws,
        )  # fmt: skip
        found[k, 0], found[k, 1] = loss / samples, right
        if train:
            found[k, 2], found[k, 3] = layers.finish_gradient(x[k], grad[k], clip, decay)
        fresh = len(starts) > 2
        add_at_once(counters, 1, 1)
        k = add_at_once(counters, 0, 1)
    if seen < 0:
        while add_at_once(counters, 1, 0) < len(x):
            pass
    else:
        for _ in range(LINGERING):
            if add_at_once(generation, 0, 0) != seen:
                break
