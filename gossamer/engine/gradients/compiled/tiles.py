"""Sums of products that stay in registers, which all convolutions and linear layers are made of.

A tile is a dozen sums, each a vector of samples. Every vector and every weight that is loaded feeds several of them,
which is what lets a processor do two multiplications in every cycle. Two kinds suffice:

- `correlate`: weights times vectors. Forward passes, gradients of inputs, and gradients of a linear layer's weights.
- `outer`: vectors times vectors. Gradients of a convolution's weights.

Strides are arguments, so that one compiled tile serves every layer; only the shape of the tile is compiled in. They are
written as LLVM code because numba's own loops would keep the sums in memory.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from gossamer.engine.gradients.compiled.program import CORRELATIONS, OUTERS, Shapes
from gossamer.engine.gradients.compiled.vectors import Vector, fused, spread_lanes


class _Pointer:
    """A place in an array."""

    def __init__(self, context: Any, builder: Any, kind: Vector, place: Any) -> None:
        self.context, self.builder, self.kind, self.place = context, builder, kind, place

    def after(self, offset: Any) -> "_Pointer":
        return _Pointer(self.context, self.builder, self.kind, self.builder.gep(self.place, [offset]))

    def vector(self, offset: Any) -> Any:
        return self.builder.load(self._wide(offset), align=self.kind.dtype.bitwidth // 8)

    def everywhere(self, offset: Any) -> Any:
        return spread_lanes(self.context, self.builder, self.kind, self.builder.load(self.after(offset).place))

    def write(self, offset: Any, vector: Any) -> None:
        self.builder.store(vector, self._wide(offset), align=self.kind.dtype.bitwidth // 8)

    def _wide(self, offset: Any) -> Any:
        wide = self.context.get_value_type(self.kind).as_pointer()
        return self.builder.bitcast(self.after(offset).place, wide)

    def multiples(self, stride: Any, count: int) -> list[Any]:
        """0, stride, 2 stride, ..."""
        return [self.builder.mul(stride, ir.Constant(stride.type, k)) for k in range(count)]


@contextmanager
def _walk(builder: Any, count: Any, pointers: list[_Pointer], steps: list[Any]) -> Iterator[list[_Pointer]]:
    """A loop in which every pointer moves on by its step, and which LLVM does not unroll.

    An unrolled loop has more pointers than there are registers for them.
    """
    places = [cgutils.alloca_once_value(builder, p.place) for p in pointers]
    for pointer, place in zip(pointers, places, strict=True):
        builder.store(pointer.place, place)
    with cgutils.for_range(builder, count):
        now = [
            _Pointer(p.context, builder, p.kind, builder.load(place)) for p, place in zip(pointers, places, strict=True)
        ]
        kind = now[0].place.type
        now[0].place = builder.asm(ir.FunctionType(kind, [kind]), "", "=r,0", [now[0].place], side_effect=False)
        now[0].place.attributes.add("convergent")
        yield now
        for pointer, place, step in zip(now, places, steps, strict=True):
            builder.store(pointer.after(step).place, place)


def _multiply(
    builder: Any, sums: list[Any], columns: int, left: Callable[[int], Any], right: Callable[[int], Any]
) -> None:
    """sums[r, c] += left(r) * right(c), with as few vectors as possible in registers at once."""
    rows = len(sums) // columns

    def add(r: int, c: int, one: Any, other: Any) -> None:
        place = sums[r * columns + c]
        builder.store(fused(builder, other, one, builder.load(place)), place)

    if rows <= columns:
        factors = [left(r) for r in range(rows)]
        for c in range(columns):
            vector = right(c)
            for r in range(rows):
                add(r, c, factors[r], vector)
    else:
        vectors = [right(c) for c in range(columns)]
        for r in range(rows):
            factor = left(r)
            for c in range(columns):
                add(r, c, factor, vectors[c])


def _sums_of_products(shapes: Shapes, weighted: bool, more: bool) -> Any:
    """run(rows, columns, left, a, a_row, ws, b, b_column, loops, out, to, row, column, count).

    out[to + r * row + c * column] is set (or added to, if `more`) to the sum over i, j, k of
    left[a + r * a_row + i * loops[0][1] + ...] * ws[b + c * b_column + i * loops[0][2] + ...],
    where i < loops[0][0] and so on. What is read from `left` is one number for all lanes if `weighted`, else a vector.
    The same is done for `count` neighbouring tiles.
    """

    @intrinsic
    def run(
        typing: Any, rows: Any, columns: Any, left: Any, a: Any, a_row: Any, ws: Any, b: Any, b_column: Any, loops: Any,
        out: Any, to: Any, row: Any, column: Any, count: Any,
    ) -> Any:  # fmt: skip
        integer = types.intp
        nest = types.UniTuple(types.UniTuple(integer, 3), 3)

        def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            kinds = signature.args
            steps = [cgutils.unpack_tuple(builder, level) for level in cgutils.unpack_tuple(builder, args[8])]

            kind = Vector(ws.dtype)
            zero = ir.Constant(context.get_value_type(kind), [0.0] * kind.lanes)

            def pointer(k: int) -> _Pointer:
                array = context.make_array(kinds[k])(context, builder, args[k])
                return _Pointer(context, builder, kind, builder.gep(array.data, [args[k + 1]]))

            def tile(tall: int, wide: int) -> None:
                sums = [cgutils.alloca_once_value(builder, zero) for _ in range(tall * wide)]
                down, right = pointer(2).multiples(args[4], tall), pointer(2).multiples(args[7], wide)
                to_down, to_right = pointer(9).multiples(args[11], tall), pointer(9).multiples(args[12], wide)
                (many, *far), (some, *near), (few, *next_) = steps
                strides = [builder.mul(stride, ir.Constant(stride.type, wide)) for stride in (args[7], args[12])]
                with _walk(builder, args[13], [pointer(5), pointer(9)], strides) as (begin, end):
                    for place in sums:
                        builder.store(zero, place)
                    with _walk(builder, many, [pointer(2), begin], far) as p:  # noqa: SIM117
                        with _walk(builder, some, p, near) as q:
                            with _walk(builder, few, q, next_) as (first, second):
                                read = first.everywhere if weighted else first.vector
                                _multiply(
                                    builder, sums, wide, lambda r: read(down[r]), lambda c: second.vector(right[c])
                                )
                    for n, place in enumerate(sums):
                        offset, vector = builder.add(to_down[n // wide], to_right[n % wide]), builder.load(place)
                        end.write(offset, builder.fadd(end.vector(offset), vector) if more else vector)

            for wide, heights in shapes.items():
                for tall in heights:
                    is_tall = builder.icmp_signed("==", args[0], ir.Constant(args[0].type, tall))
                    is_wide = builder.icmp_signed("==", args[1], ir.Constant(args[1].type, wide))
                    with builder.if_then(builder.and_(is_tall, is_wide)):
                        tile(tall, wide)
            return context.get_dummy_value()

        places = (integer, integer)
        return types.void(*places, left, *places, ws, *places, nest, out, integer, *places, integer), code

    return run


correlate = _sums_of_products(CORRELATIONS, weighted=True, more=False)
outer = _sums_of_products(OUTERS, weighted=False, more=True)
