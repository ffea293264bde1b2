"""Translate a chain into the operations that `machine.run` executes, and lay out its workspace.

The workspace of a thread is one array of numbers: what all blocks share (gradients on their way back, sums), what is
kept of a block from its forward to its backward pass (several blocks, one after the other), the batch's inputs as
blocks, and rows that hold one number of every sample.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gossamer.engine.gradients.recognition import Step, Windows

CONVOLUTION, BIAS, RELU, MAX_POOL, MEAN_POOL, GROUP_NORM, LINEAR = range(7)

Shapes = dict[int, tuple[int, ...]]

TOGETHER = 4
"""Blocks that go through the layers behind the flatten at once."""
GATHERED = 1500
"""The gradient of a convolution's weights is summed over all of these blocks at once if a sample's input and output
have at most so many numbers: then the blocks fit into the cache."""
PANEL = 4
"""Vectors of inputs for which the gradients of a linear layer's weights are computed at once."""
CORRELATIONS: Shapes = {4: (3, 2, 1), 3: (4, 2, 1), 2: (6, 3, 1), 1: (8, 4, 1)}
"""The columns of a tile, and how many rows it may have: at most 12 sums, out of 16 registers."""
OUTERS: Shapes = {5: (2, 1), 4: (3, 1), 3: (4, 2, 1), 2: (4, 1), 1: (4, 1)}
"""The same for gradients of a convolution's weights: columns are the taps of a kernel, rows are filters."""

PLACES = ("x", "y", "kept", "padded", "dy", "dx", "dz", "turned", "scratch", "sums", "bias_sums")
"""Where numbers begin: -1 if there are none. An `x` of -1 is the batch's input."""
PARAMETERS = ("weight", "weight_out", "weight_in", "weight_y", "weight_x", "bias", "gamma", "beta")
"""Where parameters begin (-1: none), and the strides of a convolution's weights."""
SIZES = (
    "kind", "back", "gathered", "channels", "rows", "columns", "pitch", "outs", "out_rows", "out_columns", "kernel_y",
    "kernel_x", "stride_y", "stride_x", "padding_y", "padding_x", "dilation_y", "dilation_x", "tile", "back_tile",
    "taps", "dz_pitch", "pool_rows", "pool_columns", "pool_y", "pool_x", "pool_stride_y", "pool_stride_x",
    "rectified", "scattered", "groups",
)  # fmt: skip
OPERATION = np.dtype([(name, np.int64) for name in PLACES + PARAMETERS + SIZES] + [("eps", np.float64)])


def _operation(kind: int, **values: Any) -> Any:
    operation = np.zeros((), OPERATION)
    for name in (*PLACES, *PARAMETERS):
        operation[name] = -1
    for name, value in {"kind": kind, **values}.items():
        operation[name] = value
    return operation


def _best_tile(shapes: Shapes, rows: int, columns: int, taps: Callable[[int, int], int] = lambda c, wide: 1) -> int:
    """The widest tile to use for so many rows and columns of sums: the one that takes the fewest cycles, roughly.

    A processor does two products or two loads a cycle, and a sum takes one every four cycles. A tile that begins at
    column c adds taps(c, columns of the tile) products to every sum.
    """

    def cycles(widest: int) -> float:
        total, done = 0.0, 0
        while done < columns:
            left = columns - done
            wide = left if left <= widest else widest - 1 if left == widest + 1 and widest > 2 else widest
            rest = rows
            while rest:
                tall = next(tall for tall in shapes[wide] if tall <= rest)
                total += taps(done, wide) * max(tall * wide / 2, (tall + wide) / 2, 4)
                rest -= tall
            done += wide
        return total

    return min(shapes, key=cycles)


def _back_tile(ins: int, columns: int, out_columns: int, kernel: int, stride: int, padding: int) -> int:
    """The widest tile for the gradient of a convolution's input, whose columns at the edges need fewer taps."""

    def taps(c: int, wide: int) -> int:
        start = padding // stride
        least, most = max(0, c + start - (out_columns - 1)), min(-(-kernel // stride), c + start + wide)
        return max(0, most - least)

    return _best_tile(CORRELATIONS, ins, -(-columns // stride), taps)


@dataclass(frozen=True)
class Program:
    """The operations of a chain, and the layout of a workspace."""

    images: Any
    rows: Any
    shape: tuple[int, int, int]
    margin: int
    """Zeros on both sides of every line of the input."""
    lanes: int
    block: int
    input_block: int
    row_numbers: int
    sizes: tuple[int, ...]
    """As `machine.run` takes them."""

    def workspace(self, samples: int) -> int:
        """Numbers that a batch of so many samples needs."""
        blocks = -(-samples // self.lanes)
        return self.pixels + blocks * (self.input_block + self.row_numbers * self.lanes) + self.lanes**2

    @property
    def classes(self) -> int:
        """The number of outputs."""
        return self.sizes[6]

    @property
    def pixels(self) -> int:
        """Where the blocks of the input begin."""
        return self.sizes[14]

    @property
    def numbers(self) -> int:
        """What is kept of a sample between its forward and its backward pass."""
        return (self.block + self.input_block) // self.lanes + self.row_numbers


@dataclass
class _Builder:
    shape: tuple[int, int, int]
    lanes: int
    shared: int = 0
    block: int = 0
    sums: int = 0
    row_numbers: int = 0
    images: list[Any] = field(default_factory=list)
    rows: list[Any] = field(default_factory=list)
    at: int = -1
    """Where the last layer's output begins: in the block, or among the rows."""
    largest: int = 0
    margin: int = 0
    output_dy: int = 0
    image_count: int = 0
    """Numbers in front of the flatten."""

    def of_all(self, vectors: int) -> int:
        self.shared += vectors * self.lanes
        return self.shared - vectors * self.lanes

    def of_a_block(self, vectors: int) -> int:
        self.block += vectors * self.lanes
        return self.block - vectors * self.lanes

    def of_the_sums(self, vectors: int) -> int:
        self.sums += vectors * self.lanes
        return self.sums - vectors * self.lanes

    def of_the_rows(self, rows: int) -> int:
        self.row_numbers += rows
        return self.row_numbers - rows

    @property
    def count(self) -> int:
        channels, height, width = self.shape
        return channels * height * width

    def move(self, shape: tuple[int, int, int]) -> int:
        """Room for an output, which is what the next layer sees."""
        self.largest = max(self.largest, self.count)
        self.shape = shape
        self.largest = max(self.largest, self.count)
        self.at = self.of_a_block(self.count)
        return self.at

    def image(self, kind: int, **values: Any) -> Any:
        channels, rows, columns = self.shape
        operation = _operation(kind, x=self.at, channels=channels, rows=rows, columns=columns, **values)
        self.images.append(operation)
        return operation

    def convolution(
        self, weight: Any, stride: Any, padding: Any, pool: Windows | None, bias: Any, rectified: bool
    ) -> None:
        filters, ins, high, wide = weight.shape
        _, rows, columns = self.shape
        out_rows = (rows + 2 * padding[0] - high) // stride[0] + 1
        out_columns = (columns + 2 * padding[1] - wide) // stride[1] + 1
        strides = (
            (high * wide * ins, 1, wide * ins, ins)
            if weight.channels_last
            else (high * wide * ins, high * wide, wide, 1)
        )
        pitch = columns + 2 * padding[1]
        operation = self.image(
            CONVOLUTION, pitch=pitch, outs=filters, out_rows=out_rows, out_columns=out_columns,
            kernel_y=high, kernel_x=wide, stride_y=stride[0], stride_x=stride[1], padding_y=padding[0],
            padding_x=padding[1], weight=weight.start, weight_out=strides[0], weight_in=strides[1],
            weight_y=strides[2], weight_x=strides[3], tile=_best_tile(CORRELATIONS, filters, out_columns),
            back_tile=_back_tile(ins, columns, out_columns, wide, stride[1], padding[1]),
            taps=_best_tile(OUTERS, filters, wide), sums=self.of_the_sums(weight.size),
            bias_sums=self.of_the_sums(filters),
        )  # fmt: skip
        if not self.images[:-1]:
            self.margin = padding[1]  # the input is written with its padding
        elif padding[1]:
            operation["padded"] = self.of_a_block(ins * rows * pitch)
        self.largest = max(self.largest, filters * out_rows * out_columns)
        if pool is None:
            operation["y"] = self.move((filters, out_rows, out_columns))
            return
        pool_rows = (out_rows - pool.size[0]) // pool.stride[0] + 1
        pool_columns = (out_columns - pool.size[1]) // pool.stride[1] + 1
        covered = (pool_rows * pool.size[0], pool_columns * pool.size[1]) == (out_rows, out_columns)
        operation["scratch"] = self.of_all(filters * pool.size[0] * out_columns)
        operation["y"] = self.move((filters, pool_rows, pool_columns))
        operation["kept"] = self.of_a_block(self.count)
        for name, value in {
            "pool_rows": pool_rows, "pool_columns": pool_columns, "pool_y": pool.size[0], "pool_x": pool.size[1],
            "pool_stride_y": pool.stride[0], "pool_stride_x": pool.stride[1], "rectified": rectified,
            "scattered": not covered, "bias": -1 if bias is None else bias.start,
        }.items():  # fmt: skip
            operation[name] = value

    def pool(self, kind: int, windows: Windows) -> None:
        operation = self.image(kind)
        for name in ("size", "stride", "padding", "dilation"):
            for axis, value in zip("yx", getattr(windows, name), strict=True):
                operation[f"{'kernel' if name == 'size' else name}_{axis}"] = value
        out = [
            (self.shape[1 + i] + 2 * windows.padding[i] - windows.dilation[i] * (windows.size[i] - 1) - 1)
            // windows.stride[i]
            + 1
            for i in range(2)
        ]
        operation["outs"], operation["out_rows"], operation["out_columns"] = self.shape[0], *out
        operation["y"] = self.move((self.shape[0], out[0], out[1]))
        if kind == MAX_POOL:
            operation["kept"] = self.of_a_block(self.count)

    def read_image(self, steps: Sequence[Step]) -> int:
        """Translate the first step in front of the flatten, and what is fused with it; returns the steps it took."""
        name, given = steps[0]
        if name == "convolution":
            pool = steps[1][1][0] if len(steps) > 1 and _is_fusible(steps[1]) else None
            taken = 1 if pool is None else 2
            bias, rectified = None, False
            if pool is not None and len(steps) > taken and steps[taken][0] == "bias":
                bias, taken = steps[taken][1][0], taken + 1
            if pool is not None and len(steps) > taken and steps[taken][0] == "relu":
                rectified, taken = True, taken + 1
            weight, stride, padding = given
            self.convolution(weight, stride, padding, pool, bias, rectified)
            return taken
        if name == "bias":
            self.image(BIAS, bias=given[0].start, sums=self.of_the_sums(self.shape[0]))
        elif name == "relu":
            self.image(RELU)
        elif name == "group_norm":
            operation = self.image(GROUP_NORM, groups=given[0], eps=given[1], **self.affine(given[2]))
            operation["kept"] = self.of_a_block(2 * given[0])
            operation["y"] = self.move(self.shape)
        elif name == "global_mean":
            self.pool(MEAN_POOL, Windows(self.shape[1:], self.shape[1:], (0, 0)))
        else:
            self.pool(MAX_POOL if name == "max_pool" else MEAN_POOL, given[0])
        return 1

    def affine(self, slots: Any) -> dict[str, int]:
        """Gamma and beta of a group norm."""
        if slots is None:
            return {}
        return {"gamma": slots[0].start, "beta": slots[1].start, "sums": self.of_the_sums(2 * slots[0].size)}

    def flatten(self) -> None:
        self.image_count = self.count
        self.at, self.shape = self.of_the_rows(self.count), (self.count, 1, 1)

    def read_rows(self, step: Step) -> None:
        """Translate a step behind the flatten."""
        name, given = step
        features = self.shape[0]
        operation = _operation(RELU, x=self.at, y=self.at, channels=features, outs=features)
        self.rows.append(operation)
        if name == "bias":
            operation["kind"], operation["bias"], operation["sums"] = BIAS, given[0].start, self.of_the_sums(features)
        elif name == "linear":
            outs, ins = given[0].shape
            operation["kind"], operation["weight"], operation["outs"] = LINEAR, given[0].start, outs
            panel = PANEL * self.lanes
            operation["turned"] = self.of_the_rows(-(-ins // panel) * panel)
            operation["scratch"] = self.of_all(outs)
            operation["y"] = self.at = self.of_the_rows(outs)
            self.shape = (outs, 1, 1)
        elif name == "group_norm":
            operation["kind"], operation["groups"], operation["eps"] = GROUP_NORM, given[0], given[1]
            for key, value in self.affine(given[2]).items():
                operation[key] = value
            operation["kept"] = self.of_the_rows(2 * given[0])
            operation["y"] = self.at = self.of_the_rows(features)

    def lay_gradients(self) -> tuple[int, int]:
        """Decide where gradients go; returns where those of the flattened images are, among all and among the rows."""
        every = [*self.images, *self.rows]
        first = next(k for k, operation in enumerate(every) if _trains(operation))
        dy = self.output_dy = self.of_the_rows(self.shape[0])
        for k in range(len(every) - 1, max(first, len(self.images)) - 1, -1):
            operation = every[k]
            operation["back"], operation["dy"] = 1, dy
            if operation["kind"] == GROUP_NORM or (operation["kind"] == LINEAR and k > first):
                dy = operation["dx"] = self.of_the_rows(int(operation["channels"]))
        if first >= len(self.images):
            return -1, -1
        row_dy = dy
        here, other = self.of_all(self.largest), self.of_all(self.largest)
        image_dy = here
        for k in range(len(self.images) - 1, first - 1, -1):
            operation = self.images[k]
            operation["back"], operation["dy"] = 1, here
            if operation["kind"] in (BIAS, RELU):
                continue
            if operation["kind"] == CONVOLUTION:
                self.lay_convolution(operation, k > first)
            if operation["kind"] != CONVOLUTION or k > first:
                operation["dx"] = other
                here, other = other, here
        return image_dy, row_dy

    def lay_convolution(self, operation: Any, needs_dx: bool) -> None:
        """Room for the gradient of a convolution's output, with zeros beside the lines if the input's is wanted."""
        zeros = int(operation["back_tile"]) - 1 if needs_dx else 0
        operation["dz_pitch"] = operation["out_columns"] + zeros
        lines = int(operation["outs"] * operation["out_rows"])
        numbers = zeros + lines * int(operation["dz_pitch"]) + zeros
        inputs = int(operation["channels"] * operation["rows"] * operation["pitch"])
        if numbers + inputs <= GATHERED:
            operation["gathered"] = 1
            operation["dz"] = self.of_a_block(numbers) + zeros * self.lanes
            return
        if zeros == 0 and not operation["pool_rows"]:
            operation["dz"] = operation["dy"]
            return
        operation["dz"] = self.of_all(numbers) + zeros * self.lanes


def _trains(operation: Any) -> bool:
    return bool(operation["kind"] in (CONVOLUTION, BIAS, LINEAR) or operation["gamma"] >= 0)


def _is_fusible(step: Step) -> bool:
    """Whether it is a max pooling whose windows do not overlap."""
    if step[0] != "max_pool":
        return False
    windows = step[1][0]
    apart = all(stride >= size for stride, size in zip(windows.stride, windows.size, strict=True))
    return apart and windows.padding == (0, 0) and windows.dilation == (1, 1)


def translate(steps: Sequence[Step], shape: tuple[int, ...], lanes: int) -> Program:
    """The program of a chain for samples of a shape (C, H, W) or (F,)."""
    full = (shape[0], shape[1], shape[2]) if len(shape) == 3 else (shape[0], 1, 1)
    builder = _Builder(full, lanes)
    is_flat, place = len(shape) == 1, 0
    if is_flat:
        builder.flatten()
    while place < len(steps):
        if steps[place][0] == "flatten":
            if not is_flat:
                builder.flatten()
                is_flat = True
            place += 1
        elif is_flat:
            builder.read_rows(steps[place])
            place += 1
        else:
            place += builder.read_image(steps[place:])
    image_dy, row_dy = builder.lay_gradients()
    sums = builder.of_all(builder.sums // lanes)
    for operation in (*builder.images, *builder.rows):
        for name in ("sums", "bias_sums"):
            if operation[name] >= 0:
                operation[name] += sums
    end_of_sums, pitch = builder.shared, full[2] + 2 * builder.margin
    input_block = full[0] * full[1] * pitch * lanes
    lines = builder.of_all(-(-pitch // lanes) * lanes)
    sizes = (
        builder.shared, builder.block, builder.image_count, input_block, builder.at, builder.output_dy,
        builder.shape[0], TOGETHER, sums, end_of_sums, image_dy, row_dy, builder.margin, lines,
        builder.shared + TOGETHER * builder.block,
    )  # fmt: skip
    return Program(
        np.array(builder.images, OPERATION).view(np.int64),
        np.array(builder.rows, OPERATION).view(np.int64),
        full,
        builder.margin,
        lanes,
        builder.block,
        input_block,
        builder.row_numbers,
        sizes,
    )
