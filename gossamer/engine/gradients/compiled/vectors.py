"""Vectors of samples for numba: what a kernel computes with, one number of each of `LANES` samples at a time.

Numba's own loops are vectorised or not as LLVM likes, and their sums live in memory. A `Vector` is one value to LLVM,
so that a dozen of them stay in registers through a loop, and every product that is to be fused with a sum says so.
Comparisons are chosen such that NaN goes where torch lets it go.
"""

import operator
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.codegen import get_host_cpu_features
from numba.extending import intrinsic, models, overload, register_model


def _vector_bits() -> int:
    """One register of AVX-512 where there is one, else one of AVX2 or two of NEON."""
    features = numba.config.CPU_FEATURES  # NUMBA_CPU_FEATURES in the environment decides what numba compiles for
    features = get_host_cpu_features() if features is None else features
    return 512 if "+avx512f" in features.split(",") else 256


_BITS = _vector_bits()
LANES = {np.dtype(np.float32): _BITS // 32, np.dtype(np.float64): _BITS // 64}
"""Samples in a vector."""


class Vector(types.Type):
    """Some numbers of a floating-point type, side by side."""

    def __init__(self, dtype: Any) -> None:
        self.dtype = dtype
        self.lanes = _BITS // dtype.bitwidth
        super().__init__(name=f"Vector({dtype}, {self.lanes})")


@register_model(Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Vector) -> None:
        scalar = manager[kind.dtype].get_value_type()
        super().__init__(manager, kind, ir.VectorType(scalar, kind.lanes))


def _pointer(context: Any, builder: Any, kind: Any, array: Any, index: Any) -> Any:
    data = context.make_array(kind)(context, builder, array).data
    return builder.gep(data, [index])


@intrinsic
def load(typing: Any, array: Any, index: Any) -> Any:
    """The vector at array[index:]."""
    kind = Vector(array.dtype)

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = _pointer(context, builder, signature.args[0], *args)
        place = builder.bitcast(place, context.get_value_type(kind).as_pointer())
        return builder.load(place, align=array.dtype.bitwidth // 8)

    return kind(array, types.intp), code


@intrinsic
def store(typing: Any, array: Any, index: Any, vector: Any) -> Any:
    """array[index:] = vector."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = _pointer(context, builder, signature.args[0], *args[:2])
        place = builder.bitcast(place, args[2].type.as_pointer())
        builder.store(args[2], place, align=array.dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(array, types.intp, vector), code


def spread_lanes(context: Any, builder: Any, kind: Vector, scalar: Any) -> Any:
    """LLVM code for a vector that holds the scalar in every lane."""
    wide = context.get_value_type(kind)
    first = builder.insert_element(ir.Constant(wide, ir.Undefined), scalar, ir.Constant(ir.IntType(32), 0))
    zeros = ir.Constant(ir.VectorType(ir.IntType(32), kind.lanes), [0] * kind.lanes)
    return builder.shuffle_vector(first, ir.Constant(wide, ir.Undefined), zeros)


@intrinsic
def spread(typing: Any, array: Any, index: Any) -> Any:
    """array[index] in every lane."""
    kind = Vector(array.dtype)

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = _pointer(context, builder, signature.args[0], *args)
        return spread_lanes(context, builder, kind, builder.load(place))

    return kind(array, types.intp), code


@intrinsic
def fill(typing: Any, array: Any, number: Any) -> Any:
    """A number in every lane, of the array's type."""
    kind = Vector(array.dtype)

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return spread_lanes(context, builder, kind, args[1])

    return kind(array, array.dtype), code


def _elementwise(count: int, code: Callable[..., Any]) -> Any:
    """An intrinsic of `count` vectors of one type: code(builder, *vectors)."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return code(builder, *args)

    if count == 1:
        return intrinsic(lambda typing, a: (a(a), emit))
    if count == 2:
        return intrinsic(lambda typing, a, b: (a(a, a), emit))
    return intrinsic(lambda typing, a, b, c: (a(a, a, a), emit))


def _zero(like: Any) -> Any:
    return ir.Constant(like.type, [0.0] * like.type.count)


def _call(builder: Any, name: str, *vectors: Any) -> Any:
    """LLVM's own function of that name."""
    wide = vectors[0].type
    full = f"llvm.{name}.v{wide.count}f{32 if isinstance(wide.element, ir.FloatType) else 64}"
    kind = ir.FunctionType(wide, [wide] * len(vectors))
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, full), vectors)


def fused(builder: Any, a: Any, b: Any, c: Any) -> Any:
    """LLVM code for a * b + c, rounded once."""
    return _call(builder, "fma", a, b, c)


def _replaces(builder: Any, best: Any, value: Any) -> Any:
    """Where torch's max pooling takes `value` instead of `best`: it is larger, or NaN."""
    return builder.or_(builder.fcmp_ordered(">", value, best), builder.fcmp_unordered("uno", value, value))


def _apart(builder: Any, a: Any) -> Any:
    """The same vector. LLVM does not see where it comes from: a choice stored in place would become a masked store.

    AMD's processors take twenty cycles for one of those.
    """
    return _call(builder, "arithmetic.fence", a)


fma = _elementwise(3, fused)
"""a * b + c, rounded once."""
root = _elementwise(1, lambda b, a: _call(b, "sqrt", a))
relu = _elementwise(1, lambda b, x: b.select(b.fcmp_ordered(">", _zero(x), x), _zero(x), _apart(b, x)))
"""max(x, 0), and NaN of NaN."""
gate = _elementwise(2, lambda b, y, dy: b.select(b.fcmp_ordered("<=", y, _zero(y)), _zero(y), _apart(b, dy)))
"""0 where y <= 0, else dy: the gradient of a ReLU, whose output is y."""
larger = _elementwise(2, lambda b, best, value: b.select(_replaces(b, best, value), value, best))
"""The larger one, NaN if one is NaN."""
only = _elementwise(3, lambda b, x, y, dy: b.select(b.fcmp_ordered("==", x, y), dy, _zero(dy)))
"""dy where x == y, else 0."""


@intrinsic
def place(typing: Any, best: Any, value: Any, old: Any, new: Any) -> Any:
    """`new` where `value` replaces `best`, else `old`."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.select(_replaces(builder, args[0], args[1]), args[3], args[2])

    return best(best, best, best, best), code


@intrinsic
def closed(typing: Any, y: Any, old: Any, new: Any) -> Any:
    """`new` where y <= 0, else `old`."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.select(builder.fcmp_ordered("<=", args[0], _zero(args[0])), args[2], args[1])

    return y(y, y, y), code


def _turned(builder: Any, vectors: list[Any]) -> list[Any]:
    """The transpose of a square of numbers: vector i has lane i of each of the vectors."""
    vectors, lanes = list(vectors), len(vectors)
    step = lanes // 2
    while step:
        low = [lane if not lane & step else lanes + lane - step for lane in range(lanes)]
        high = [lane + step if not lane & step else lanes + lane for lane in range(lanes)]
        masks = [ir.Constant(ir.VectorType(ir.IntType(32), lanes), mask) for mask in (low, high)]
        for i in range(lanes):
            if not i & step:
                pair = vectors[i], vectors[i + step]
                vectors[i], vectors[i + step] = (builder.shuffle_vector(*pair, mask) for mask in masks)
        step //= 2
    return vectors


def _sum_of_pairs(builder: Any, parts: list[Any]) -> Any:
    while len(parts) > 1:
        half = len(parts) // 2
        parts = [builder.fadd(parts[i], parts[i + half]) for i in range(half)]
    return parts[0]


@intrinsic
def total(typing: Any, vector: Any) -> Any:
    """The sum of the lanes, pair by pair."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        index = ir.IntType(32)
        lanes = [builder.extract_element(args[0], ir.Constant(index, i)) for i in range(vector.lanes)]
        return _sum_of_pairs(builder, lanes)

    return vector.dtype(vector), code


@intrinsic
def totals(typing: Any, array: Any, index: Any) -> Any:
    """The `total` of each of the next vectors, as many as there are lanes."""
    kind = Vector(array.dtype)

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _sum_of_pairs(builder, _turned(builder, _square(context, builder, kind, signature, args, None)))

    return kind(array, types.intp), code


def _square(context: Any, builder: Any, kind: Vector, signature: Any, args: Any, stride: Any) -> list[Any]:
    """As many vectors of args[0] from args[1] on as there are lanes, `stride` apart (None: neighbours)."""
    place, wide = _pointer(context, builder, signature.args[0], *args[:2]), context.get_value_type(kind).as_pointer()
    stride = stride or ir.Constant(args[1].type, kind.lanes)
    offsets = [builder.mul(stride, ir.Constant(stride.type, i)) for i in range(kind.lanes)]
    places = [builder.bitcast(builder.gep(place, [offset]), wide) for offset in offsets]
    return [builder.load(place, align=kind.dtype.bitwidth // 8) for place in places]


@intrinsic
def turn_square(typing: Any, array: Any, index: Any, stride: Any, to: Any, to_stride: Any) -> Any:
    """Transpose a square of numbers, whose rows begin `stride` apart, to rows that begin `to_stride` apart."""
    kind = Vector(array.dtype)

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        vectors = _turned(builder, _square(context, builder, kind, signature, args, args[2]))
        for i, vector in enumerate(vectors):
            offset = builder.add(args[3], builder.mul(args[4], ir.Constant(args[4].type, i)))
            place = _pointer(context, builder, signature.args[0], args[0], offset)
            builder.store(vector, builder.bitcast(place, vector.type.as_pointer()), align=array.dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(array, *[types.intp] * 4), code


@intrinsic
def read(typing: Any, like: Any, array: Any, index: Any) -> Any:
    """The vector of array[index:], whatever its numbers are, as numbers of the type of `like`."""
    kind, own = Vector(like.dtype), array.dtype

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = _pointer(context, builder, signature.args[1], *args[1:])
        found, wide = ir.VectorType(context.get_value_type(own), kind.lanes), context.get_value_type(kind)
        vector = builder.load(builder.bitcast(place, found.as_pointer()), align=own.bitwidth // 8)
        if isinstance(own, types.Integer):
            return builder.uitofp(vector, wide)
        if own.bitwidth == kind.dtype.bitwidth:
            return vector
        return (builder.fpext if own.bitwidth < kind.dtype.bitwidth else builder.fptrunc)(vector, wide)

    return kind(like, array, types.intp), code


def _reversed(builder: Any, vector: Any) -> Any:
    count = vector.type.count
    mask = ir.Constant(ir.VectorType(ir.IntType(32), count), list(range(count - 1, -1, -1)))
    return builder.shuffle_vector(vector, vector, mask)


backwards = _elementwise(1, _reversed)
"""The lanes in the opposite order."""


@intrinsic
def add_at_once(typing: Any, counter: Any, index: Any, more: Any) -> Any:
    """counter[index], which becomes `more` larger, in one step that no other thread can interrupt.

    What this thread wrote before, others see after it.
    """

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = _pointer(context, builder, counter, args[0], args[1])
        return builder.atomic_rmw("add", place, args[2], "seq_cst")

    return types.int64(counter, types.intp, types.int64), code


def _operator(function: Any, name: str) -> None:
    compute = _elementwise(2, lambda builder, a, b: getattr(builder, name)(a, b))

    @overload(function, strict=False)
    def choose(a: Any, b: Any) -> Any:
        if isinstance(a, Vector) and isinstance(b, Vector):
            return lambda a, b: compute(a, b)
        return None


_operator(operator.add, "fadd")
_operator(operator.sub, "fsub")
_operator(operator.mul, "fmul")
_operator(operator.truediv, "fdiv")


@intrinsic
def width(typing: Any, array: Any) -> Any:
    """How many of the array's numbers a vector holds."""
    lanes = Vector(array.dtype).lanes

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return context.get_constant(types.intp, lanes)

    return types.intp(array), code
