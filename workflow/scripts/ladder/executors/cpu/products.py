"""Matrix products for compiled code, without copies of their factors: a kernel that keeps a tile of
the product in registers.

The left factor may be a matrix in any order, or the overlapping windows of an image, whose numbers
are never copied; the rows of the right one are contiguous. Every number of the product is the sum
of its terms in order, each added by a fused multiply-add, so its bytes depend on the factors alone,
not on how the work is cut.

Numba's cache does not see that a function calls another one that has changed. So what uses this
file is cached as tasks.py explains; team.py's functions contain no more of it than `call` and
`pointer`.
"""

import collections
import functools

import llvmlite.binding
import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ladder.machine import compiling

_FEATURES = llvmlite.binding.get_host_cpu_features()
# Bytes of a vector register, and the most rows of a tile for each number of vectors per row: a
# tile, a row of the right factor and a number of the left one together fill the registers.
MOST_ROWS: tuple[int, ...]
if _FEATURES.get("avx512f"):
    REGISTER, MOST_ROWS = 64, (14, 12, 8, 6)
elif _FEATURES.get("avx2"):
    REGISTER, MOST_ROWS = 32, (12, 6)
else:
    REGISTER, MOST_ROWS = 16, (8, 6)
VECTORS = len(MOST_ROWS)
# terms added before the next rows of a tile: so many rows of the right factor fit the cache
SUM_TERMS = 128

# A matrix of rows `stride` numbers apart, whose numbers are contiguous.
Rows = collections.namedtuple("Rows", "address stride")
# A factor a[r, i, j] at address + (r row + i outer + j inner) numbers.
Strided = collections.namedtuple("Strided", "address row outer inner")

compiled = numba.njit(nogil=True, error_model="numpy")
# for a line that takes longer to compile for each type than to be written into what calls it
inlined = numba.njit(inline="always")


@functools.cache
def compiled_function(function, kind):
    """The C function with this signature of a Python function; kept, since its address is in use as
    long as this process.
    """
    with compiling.counted():
        return numba.cfunc(kind, cache=True, error_model="numpy")(function)


@functools.cache
def compiled_product(dtype):
    """The compiled `_product` for numbers of this type.

    It is compiled by itself, because Numba would compile it again with every function that calls
    it, for seconds each time.
    """
    kind = types.void(*[types.int64] * 13, numba.from_dtype(np.dtype(dtype)))
    return compiled_function(_product, kind)


def multiply(left, right, out, add=False, lefts=None):
    """out[k] = (out[k] if add, else 0) + left[lefts[k]] right[k], matrices of one type, by the
    compiled product; lefts, an int64 array, is 0, 1, 2, ... unless given.

    The rows of `right` and `out` are contiguous, `left` may be in any order. All matrices are one
    call: threads that return to Python after each wait for its lock longer than they multiply.
    """
    lefts = np.arange(len(out)) if lefts is None else lefts
    _multiply(compiled_product(out.dtype).address, left, right, out, add, lefts)


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _multiply(address, left, right, out, add, lefts):
    size = out.itemsize
    for k in range(len(out)):
        product(
            address,
            Rows(out.ctypes.data + k * out.strides[0], out.strides[1] // size),
            out.shape[1],
            out.shape[2],
            Strided(
                left.ctypes.data + lefts[k] * left.strides[0],
                left.strides[1] // size,
                0,
                left.strides[2] // size,
            ),
            Rows(right.ctypes.data + k * right.strides[0], right.strides[1] // size),
            1,
            right.shape[1],
            add,
            out.dtype.type(0),
        )


@compiled
def product(address, out, rows, columns, left, right, outer, inner, add, like):
    """out[r, c] = (out[r, c] if add, else 0) + the sum over i < outer, j < inner of left[r, i, j]
    right[i inner + j, c].

    address: of the compiled product; out, right: Rows; left: Strided; like: a number of the type of
    all three.
    """
    call(
        address,
        (
            out.address,
            out.stride,
            rows,
            columns,
            left.address,
            left.row,
            left.outer,
            left.inner,
            right.address,
            right.stride,
            outer,
            inner,
            np.int64(add),
            like,
        ),
    )


def _product(
    out,
    out_stride,
    rows,
    columns,
    left,
    row,
    outer_step,
    inner_step,
    right,
    right_stride,
    outer,
    inner,
    add,
    like,
):
    size = bytes_of(like)
    vector = REGISTER // size
    most_terms = SUM_TERMS if outer == 1 else inner
    for column in range(0, columns, VECTORS * vector):
        width = min(VECTORS * vector, columns - column)
        vectors = (width + vector - 1) // vector
        for term in range(0, inner, most_terms):
            terms = min(most_terms, inner - term)
            factor = Rows(right + size * (term * right_stride + column), right_stride)
            tiles = (rows + MOST_ROWS[vectors - 1] - 1) // MOST_ROWS[vectors - 1]
            for tile in range(tiles):
                first, last = rows * tile // tiles, rows * (tile + 1) // tiles
                to = Rows(out + size * (first * out_stride + column), out_stride)
                window = Strided(
                    left + size * (first * row + term * inner_step), row, outer_step, inner_step
                )
                _tile(
                    vectors,
                    last - first,
                    width,
                    to,
                    window,
                    factor,
                    outer,
                    terms,
                    add != 0 or term > 0,
                    like,
                )


@intrinsic
def call(typing, address, arguments):
    """Call the compiled function at this address with a tuple of arguments."""

    def generate(context, builder, signature, given):
        address, packed = given
        values = cgutils.unpack_tuple(builder, packed)
        kind = ir.FunctionType(ir.VoidType(), [value.type for value in values])
        builder.call(builder.inttoptr(address, kind.as_pointer()), values)
        return context.get_dummy_value()

    return types.void(types.int64, arguments), generate


@intrinsic
def bytes_of(typing, like):
    """Bytes of a number like `like`."""
    return types.int64(like), lambda context, builder, signature, arguments: ir.Constant(
        _INT, like.bitwidth // 8
    )


@intrinsic
def pointer(typing, address, like):
    """The address as a pointer to numbers like `like`."""

    def generate(context, builder, signature, arguments):
        return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

    return types.CPointer(like)(types.int64, like), generate


@intrinsic
def add_run(typing, out, x, count, like):
    """Add `count` contiguous numbers at address x to those at address out."""

    def generate(context, builder, signature, arguments):
        out, x, count, _ = arguments
        code = _Vectors(builder, context.get_value_type(like), like.bitwidth // 8)
        full = builder.mul(builder.sdiv(count, _int(code.lanes)), _int(code.lanes))
        with cgutils.for_range_slice(builder, _int(0), full, _int(code.lanes), intp=_INT) as (
            place,
            _,
        ):
            code.store(builder.fadd(code.load(out, place), code.load(x, place)), out, place)
        mask = code.mask(builder.sub(count, full))
        code.store(
            builder.fadd(code.load(out, full, mask), code.load(x, full, mask)), out, full, mask
        )
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64, like), generate


@intrinsic
def _tile(typing, vectors, rows, columns, out, left, right, outer, inner, add, like):
    """One tile of `product`: `rows` rows of `columns` numbers in `vectors` registers each; outer
    and inner are at least 1.
    """

    def generate(context, builder, signature, arguments):
        vectors, rows, columns, out, left, right, outer, inner, add, _ = arguments
        code = _Vectors(builder, context.get_value_type(like), like.bitwidth // 8)
        tile = _Tile(code, out, left, right, outer, inner, add)
        done = builder.append_basic_block("done")
        widths = builder.switch(vectors, done)
        for width, most in enumerate(MOST_ROWS, 1):
            widths.add_case(_int(width), block := builder.append_basic_block(f"width{width}"))
            builder.position_at_end(block)
            mask = code.mask(builder.sub(columns, _int((width - 1) * code.lanes)))
            heights = builder.switch(rows, done)
            for height in range(1, most + 1):
                heights.add_case(
                    _int(height), block := builder.append_basic_block(f"tile{height}x{width}")
                )
                builder.position_at_end(block)
                tile.emit(height, width, mask)
                builder.branch(done)
        builder.position_at_end(done)
        return context.get_dummy_value()

    number = types.int64
    return types.void(
        number, number, number, out, left, right, number, number, types.boolean, like
    ), generate


_INT, _INT32 = ir.IntType(64), ir.IntType(32)


def _int(value):
    return ir.Constant(_INT, value)


class _Vectors:
    """Emits LLVM code for vectors of one register. Addresses are integers, offsets count
    numbers.
    """

    def __init__(self, builder, number, size):
        self.builder, self.number, self.size, self.lanes = builder, number, size, REGISTER // size
        self.vector = ir.VectorType(number, self.lanes)
        self.zero = ir.Constant(self.vector, [0.0] * self.lanes)

    def _call(self, name, result, arguments):
        kind = ir.FunctionType(result, [argument.type for argument in arguments])
        function = cgutils.get_or_insert_function(self.builder.module, kind, name)
        return self.builder.call(function, arguments)

    @property
    def _suffix(self):
        return f"v{self.lanes}f{8 * self.size}"

    def mask(self, count):
        """True for the first `count` lanes."""
        numbers = ir.VectorType(_INT, self.lanes)
        return self.builder.icmp_signed(
            "<", ir.Constant(numbers, list(range(self.lanes))), self._spread(count, numbers)
        )

    def _spread(self, value, kind):
        first = self.builder.insert_element(
            ir.Constant(kind, ir.Undefined), value, ir.Constant(_INT32, 0)
        )
        lanes = ir.Constant(ir.VectorType(_INT32, self.lanes), [0] * self.lanes)
        return self.builder.shuffle_vector(first, ir.Constant(kind, ir.Undefined), lanes)

    def _pointer(self, address, offset, kind):
        place = self.builder.add(address, self.builder.mul(offset, _int(self.size)))
        return self.builder.inttoptr(place, kind.as_pointer())

    def load(self, address, offset, mask=None):
        """The vector there; with a mask, zeros in the other lanes, whose memory is not read."""
        place = self._pointer(address, offset, self.vector)
        if mask is None:
            return self.builder.load(place, align=self.size)
        return self._call(
            f"llvm.masked.load.{self._suffix}.p0",
            self.vector,
            [place, ir.Constant(_INT32, self.size), mask, self.zero],
        )

    def store(self, value, address, offset, mask=None):
        place = self._pointer(address, offset, self.vector)
        if mask is None:
            self.builder.store(value, place, align=self.size)
        else:
            self._call(
                f"llvm.masked.store.{self._suffix}.p0",
                ir.VoidType(),
                [value, place, ir.Constant(_INT32, self.size), mask],
            )

    def everywhere(self, address, offset):
        """The number there in all lanes."""
        return self._spread(
            self.builder.load(self._pointer(address, offset, self.number), align=self.size),
            self.vector,
        )

    def rolled(self, branch):
        """Have LLVM keep the loop that this branch closes as it is: unrolled it is no faster, and
        takes longer to compile.
        """
        module = self.builder.module
        keep = module.add_metadata([ir.MetaDataString(module, "llvm.loop.unroll.disable")])
        loop = module.add_metadata([keep, ir.Constant(_INT, len(module.metadata))])
        loop.operands = loop, keep  # a loop's metadata begin with themselves
        branch.set_metadata("llvm.loop", loop)

    def multiply_add(self, first, second, sum_):
        return self._call(f"llvm.fma.{self._suffix}", self.vector, [first, second, sum_])


class _Tile:
    """Emits the loops of tiles of one product."""

    def __init__(self, code, out, left, right, outer, inner, add):
        self.code, self.outer, self.inner, self.add = code, outer, inner, add
        self.out, self.out_stride = cgutils.unpack_tuple(code.builder, out)
        self.left, *self.left_strides = cgutils.unpack_tuple(code.builder, left)
        self.right, self.right_stride = cgutils.unpack_tuple(code.builder, right)

    def emit(self, height: int, width: int, mask: ir.Value | None) -> None:
        """A tile of height rows and width vectors, the last of which has the mask."""
        build, code = self.code.builder, self.code
        row, outer_step, inner_step = self.left_strides
        masks = [None] * (width - 1) + [mask]
        places = [
            [
                build.add(build.mul(self.out_stride, _int(r)), _int(v * code.lanes))
                for v in range(width)
            ]
            for r in range(height)
        ]
        zeros = [code.zero] * (height * width)
        start, given, loops, inside, after, end = (
            build.block,
            *(
                build.append_basic_block(name)
                for name in ("given", "outer", "inner", "next", "end")
            ),
        )
        build.cbranch(self.add, given, loops)
        build.position_at_end(given)
        before = [
            code.load(self.out, places[r][v], masks[v]) for r in range(height) for v in range(width)
        ]
        build.branch(loops)

        build.position_at_end(loops)
        turn = _Loop(
            build,
            [
                (start, [_int(0), _int(0), _int(0), *zeros]),
                (given, [_int(0), _int(0), _int(0), *before]),
            ],
        )
        build.branch(inside)

        build.position_at_end(inside)
        term = _Loop(build, [(loops, [_int(0), *turn.values[1:]])])
        count, left, right, *sums = term.values
        factors = [
            code.load(self.right, build.add(right, _int(v * code.lanes)), masks[v])
            for v in range(width)
        ]
        added = []
        for r in range(height):
            number = code.everywhere(self.left, build.add(left, build.mul(row, _int(r))))
            added += [
                code.multiply_add(number, factors[v], sums[r * width + v]) for v in range(width)
            ]
        count = build.add(count, _int(1))
        right = build.add(right, self.right_stride)
        term.again(inside, [count, build.add(left, inner_step), right, *added])
        code.rolled(build.cbranch(build.icmp_signed("<", count, self.inner), inside, after))

        build.position_at_end(after)
        count = build.add(turn.values[0], _int(1))
        turn.again(after, [count, build.add(turn.values[1], outer_step), right, *added])
        code.rolled(build.cbranch(build.icmp_signed("<", count, self.outer), loops, end))

        build.position_at_end(end)
        for r in range(height):
            for v in range(width):
                code.store(added[r * width + v], self.out, places[r][v], masks[v])


class _Loop:
    """The values that change in a loop: phi nodes of the current block."""

    def __init__(self, builder, incoming):
        """incoming: [(block, values on entry from there)]"""
        self.values = [builder.phi(value.type) for value in incoming[0][1]]
        for block, values in incoming:
            self.again(block, values)

    def again(self, block, values):
        """The values for the next turn, on the way from `block`."""
        for phi, value in zip(self.values, values, strict=True):
            phi.add_incoming(value, block)
