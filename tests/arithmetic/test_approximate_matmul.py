"""Matrix products under a multiplier: bit-identical to products of multipliers.py summed in the
order of k.
"""

import concurrent.futures

import numpy as np
import pytest

import multiplier_references as references
from ladder.arithmetic import approximate_matmul as approximate
from ladder.arithmetic import multipliers
from ladder.arithmetic.approximate_matmul import pack, product
from ladder.arithmetic.multipliers import (
    MULTIPLIERS,
    Integers,
    Table,
    multiply,
    to_bfloat16,
    to_float16,
    to_tf32,
)
from ladder.errors import UserError

TABLE = Table("random", references.random_table(7))
ALL = [*MULTIPLIERS.values(), TABLE]
SHAPES = [  # m, k, n
    (1, 1, 1),
    (1, 5, 1),
    (3, 4, 16),
    (5, 7, 17),
    (2, 64, 40),
    (4, 65, 256),
    (3, 131, 300),
    (9, 130, 5),
    (70, 9, 2),
]


def assert_same(got, expected):
    """Assert equal bits, except for the payload of a NaN, which a sum takes from either operand."""
    assert (references.same_bits(got, expected) | (np.isnan(got) & np.isnan(expected))).all()


def spoiled(matrix, seed):
    """The matrix with a few numbers that are infinite, NaN or so large that products overflow."""
    random, matrix = np.random.default_rng(seed), matrix.copy()
    for value in (np.inf, -np.inf, np.nan, 3e38, -3e38, 1e25):
        matrix.reshape(-1)[random.integers(0, matrix.size)] = value
    return matrix


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("multiplier", ALL, ids=lambda multiplier: multiplier.name)
def test_a_matrix_product_sums_its_products_in_order(multiplier, shape):
    m, k, n = shape
    a, b = references.ordinary((m, k)), references.ordinary((k, n), seed=1)
    assert_same(product(a, b, multiplier), references.in_order(a, b, multiplier))
    a, b = spoiled(a, 1), spoiled(b, 2)
    assert_same(product(a, b, multiplier), references.in_order(a, b, multiplier))


def normal_numbers(shape, seed=0):
    """float32 without a zero or a subnormal, no product of which is subnormal."""
    random = np.random.default_rng([seed, *shape])
    values = (
        (1 + random.random(shape))
        * 2.0 ** random.integers(-60, 40, shape)
        * random.choice([-1, 1], shape)
    )
    return values.astype(np.float32)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(
    "multiplier", [*ALL, Table("narrow", references.random_table(3))], ids=lambda one: one.name
)
def test_the_loops_without_any_special_case(multiplier, shape):
    m, k, n = shape
    a, b = normal_numbers((m, k)), normal_numbers((k, n), seed=1)
    assert_same(product(a, b, multiplier), references.in_order(a, b, multiplier))
    a[:, ::3] = 0
    assert_same(product(a, b, multiplier), references.in_order(a, b, multiplier))


@pytest.mark.parametrize(
    "a, b, kind",
    [
        ([1, 2], [3, -4], 0),
        ([0, 1e-39], [3, 4], 0),
        ([2**-60, 0], [2**-64, 1], 0),
        ([2**-60, 1], [0.99 * 2**-64, 1], 1),
        ([1, 2], [3, 0], 1),
        ([1, 2], [3, 1e-39], 1),
        ([2**62, 1], [0, 2**63], 1),
        ([2**63, 1], [0, 2**63], 2),
        ([1, 2], [3, np.nan], 2),
        ([1, np.inf], [0, 0], 2),
    ],
    ids=str,
)
def test_magnitudes_select_the_loops(a, b, kind):
    a, b = np.array([a], np.float32), pack(np.array([b], np.float32).T, "am32")
    sums, _ = approximate._loops(approximate.Magnitudes.measure(a), b)
    assert sums is (approximate._PLAIN, approximate._GUARDED, approximate._GENERAL)[kind]["am32"]


def test_magnitudes_of_a_transposed_matrix_and_of_none():
    matrix = np.array([[0, -3, 1e-40], [np.float32(2) ** -126, 5, -0.0]], np.float32)
    for view in (matrix, matrix.T, matrix[:, ::-1]):
        assert approximate.Magnitudes.measure(view) == approximate.Magnitudes(0, 2.0**-126, 5)
    assert approximate.Magnitudes.measure(matrix[:0]) == approximate.Magnitudes(np.inf, np.inf, 0)


@pytest.mark.parametrize("bits", [1, 4])
def test_tables_of_fewer_bits(bits):
    table = Table("narrow", references.random_table(bits))
    a, b = references.ordinary((6, 20)), references.ordinary((20, 33))
    assert_same(product(a, b, table), references.in_order(a, b, table))
    assert_same(product(spoiled(a, 1), b, table), references.in_order(spoiled(a, 1), b, table))


@pytest.mark.parametrize("multiplier", ALL, ids=lambda multiplier: multiplier.name)
def test_a_million_single_products(multiplier):
    # A sum of one product has its bits, except for the sign of a zero: it starts from +0.
    values = references.pairs(2000, seed=3)[0]
    column, row = (
        values[:1000, None],
        references.pairs(1000 + references.EDGES.size**2, seed=4)[1][-1000:][None, :],
    )
    # the loops without special cases
    a, b = np.where(np.abs(column) < 1e18, column, 1), np.where(np.abs(row) < 1e18, row, 1)
    for left, right in ((column, row), (a, b), (b.T, a.T)):
        assert_same(
            product(left, right, multiplier), multiply(left, right, multiplier) + np.float32(0)
        )


@pytest.mark.parametrize("multiplier", ALL, ids=lambda multiplier: multiplier.name)
def test_products_of_all_short_mantissas_and_at_the_boundaries_of_the_formulas(multiplier):
    mantissas = (1 + np.arange(128) / 128).astype(np.float32)
    for a, b in ((mantissas, -mantissas), references.adding_up(500)):
        assert_same(
            product(a[:, None], b[None, :], multiplier),
            multiply(a[:, None], b, multiplier) + np.float32(0),
        )


@pytest.mark.parametrize("side, exponents", [(63, range(123, 130)), (-63, range(-127, -121))])
@pytest.mark.parametrize("multiplier", ALL, ids=lambda multiplier: multiplier.name)
def test_products_around_the_largest_number_and_the_smallest_without_a_special_case(
    multiplier, side, exponents
):
    mantissas = np.array([1, 1.25, 1.4375, 1.5, 2 - 2**-23])
    for exponent in exponents:
        a = (mantissas[:, None] * 2.0**side).astype(np.float32)
        b = (mantissas[None, :] * 2.0 ** (exponent - side)).astype(np.float32)
        for place in range(5):  # one at a time: the ends of the magnitudes select the loops
            one = a[place : place + 1]
            assert_same(
                product(one, b[:, place:], multiplier), multiply(one, b[:, place:], multiplier)
            )


@pytest.mark.parametrize("multiplier", ALL, ids=lambda multiplier: multiplier.name)
def test_products_around_the_least_normal_number(multiplier):
    random = np.random.default_rng(5)
    exponents, mantissas = random.integers(-70, -55, 600), random.integers(0, 1 << 23, 600)
    mantissas[:200] = np.resize(
        [0, 1, (1 << 23) - 1, 1 << 22, (1 << 23) - 655360, 655359, 655360], 200
    )
    values = (np.ldexp(1 + mantissas / (1 << 23), exponents) * random.choice([-1, 1], 600)).astype(
        np.float32
    )
    a, b = values[:, None], np.float32(1 / values[None, :]) * np.float32(2.0**-126)
    assert_same(product(a, b, multiplier), multiply(a, b, multiplier) + np.float32(0))
    assert_same(product(a, a.T, multiplier), multiply(a, a.T, multiplier) + np.float32(0))


@pytest.mark.parametrize(
    "multiplier", [MULTIPLIERS["am32"], TABLE], ids=lambda multiplier: multiplier.name
)
def test_factors_and_result_may_be_transposed_or_sliced(multiplier):
    # more than a block of the depth, and than a tile
    a, b = references.ordinary((140, 24)), references.ordinary((140, 36))
    expected = references.in_order(a.T.copy(), b, multiplier)
    assert_same(product(a.T, b, multiplier), expected)
    assert_same(product(a.T, b.T.copy().T, multiplier), expected)
    assert_same(product(np.repeat(a, 2, axis=1)[:, ::2].T, b, multiplier), expected)
    whole = np.zeros((24, 50), np.float32)
    out = whole[:, 7:43]
    assert product(a.T, b, multiplier, out) is out
    assert_same(out, expected)
    assert not whole[:, :7].any()
    assert not whole[:, 43:].any()
    assert_same(
        product(b.T, a, multiplier, whole[:, :36].T), references.in_order(b.T.copy(), a, multiplier)
    )


def test_an_empty_sum_is_zero():
    out = np.full((3, 20), np.nan, np.float32)
    assert (
        product(np.zeros((3, 0), np.float32), np.zeros((0, 20), np.float32), "am32", out) == 0
    ).all()
    assert product(np.zeros((0, 4), np.float32), np.zeros((4, 20), np.float32), "am32").shape == (
        0,
        20,
    )


@pytest.mark.parametrize("multiplier", ["mit32", "fp16"])
def test_threads_that_divide_the_rows_give_the_same_bytes(multiplier):
    a, b = references.ordinary((64, 70)), references.ordinary((70, 90))
    expected, out, packed = (
        product(a, b, multiplier),
        np.zeros((64, 90), np.float32),
        pack(b, multiplier),
    )
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(
            pool.map(
                lambda row: product(a[row : row + 4], packed, multiplier, out[row : row + 4]),
                range(0, 64, 4),
            )
        )
    assert_same(out, expected)


def test_a_packed_factor_works_with_ordinary_and_special_factors():
    b = references.ordinary((12, 20))
    b[0, 0] = 1e-40  # which an infinity makes infinite, and which is zero to any other number
    packed = pack(b, "mit16")
    for a in (
        references.ordinary((3, 12)),
        spoiled(references.ordinary((3, 12)), 1),
        np.full((3, 12), np.inf, np.float32),
    ):
        assert_same(product(a, packed, "mit16"), references.in_order(a, b, "mit16"))


def thinned(matrix, seed):
    """The matrix with zeros of both signs and subnormals in place of half its elements, and of 70
    whole columns.
    """
    random, matrix = np.random.default_rng(seed), matrix.copy()
    small = random.choice(np.array([0.0, -0.0, 1e-40, -1e-40], np.float32), matrix.shape)
    away = random.random(matrix.shape) < 0.5
    away[:, 60:130] = True  # more than a block of the depth
    return np.where(away, small, matrix)


@pytest.mark.parametrize("columns", [20, 300])
@pytest.mark.parametrize("multiplier", ALL, ids=lambda multiplier: multiplier.name)
def test_elements_that_are_passed_over_change_no_bit(multiplier, columns):
    a, b = thinned(references.ordinary((5, 200)), 1), references.ordinary((200, columns), seed=1)
    assert_same(product(a, b, multiplier), references.in_order(a, b, multiplier))
    assert_same(product(b.T, a.T, multiplier), references.in_order(b.T, a.T, multiplier))
    # times a zero: NaN, and for the infinite half of 1e5 under fp16 too
    for value in (np.inf, np.nan, 1e5, 3e38):
        b[70, 3] = value
        assert_same(product(a, b, multiplier), references.in_order(a, b, multiplier))


@pytest.mark.parametrize("multiplier", [*MULTIPLIERS, "a table"])
def test_the_factor_with_more_zeros_is_the_one_whose_zeros_are_passed_over(multiplier, monkeypatch):
    packed, pack = [], approximate.pack
    monkeypatch.setattr(
        approximate, "pack", lambda b, *rest: packed.append(b.shape) or pack(b, *rest)
    )
    multiplier = TABLE if multiplier == "a table" else MULTIPLIERS[multiplier]
    dense, thin = (
        references.ordinary((96, 200)),
        thinned(references.ordinary((200, 128), seed=1), 2).T.copy().T,
    )
    product(dense, thin, multiplier)
    assert packed == [(200, 128) if multiplier.name in ("exact", "fp16") else (200, 96)]


def test_bad_arguments_are_refused():
    ones, short, wide, doubles = (
        np.ones(shape, dtype)
        for shape, dtype in (
            ((4, 4), np.float32),
            ((3, 4), np.float32),
            ((4, 5), np.float32),
            ((4, 4), np.float64),
        )
    )
    for arguments in [
        (ones, short, "am32"),
        (ones, doubles, "am32"),
        (doubles, ones, "am32"),
        (ones[0], ones, "am32"),
        (ones, ones[0], "am32"),
        (ones, ones, "am32", wide),
        (wide.T, ones, "am32", wide),
        (ones, pack(ones, "am32"), "mit32"),
    ]:
        with pytest.raises(ValueError):
            product(*arguments)
    with pytest.raises(UserError, match="there is no multiplier"):
        product(ones, ones, "am33")


# float16 as numbers, because its zeros lose their sign
@pytest.mark.parametrize(
    "rounds, definition, bits",
    [
        (approximate.round_to_tf32, to_tf32, np.uint32),
        (approximate.round_to_bfloat16, to_bfloat16, np.uint32),
        (approximate.round_to_float16, to_float16, np.float32),
    ],
    ids=lambda one: one.__name__,
)
def test_operands_are_rounded_as_the_formats_are_defined(rounds, definition, bits):
    values = np.concatenate(
        [*references.pairs(5000, seed=3), spoiled(references.ordinary((50,)), 1)]
    ).astype(np.float32)
    rounded = np.empty_like(values)
    rounds(values, rounded)
    np.testing.assert_array_equal(rounded.view(bits), definition(values).view(bits))


def test_panels_hold_a_whole_number_of_vectors():
    assert approximate.PANEL % approximate.VECTOR == 0
    assert multipliers.CORRECTION == approximate.CORRECTION


@pytest.mark.parametrize("signed", [True, False])
@pytest.mark.parametrize("shape", [(3, 70, 5), (40, 9, 300), (1, 1, 1), (17, 130, 16)], ids=str)
def test_sums_of_products_of_integers_are_exact(signed, shape):
    """Of numbers below 2^24; one factor has many zeros, so that products are transposed too."""
    multiplier = Integers("random", references.random_integers(signed))
    (m, k, n), random = shape, np.random.default_rng(shape)
    a, b = (
        random.integers(-multiplier.most, multiplier.most + 1, size).astype(np.float32)
        for size in ((m, k), (k, n))
    )
    b[random.random(b.shape) < 0.7] = 0
    wanted = multiply(a[:, :, None], b, multiplier).astype(float).sum(axis=1)
    assert np.array_equal(product(a, b, multiplier), wanted)
    assert np.array_equal(product(a, pack(b, multiplier), multiplier), wanted)
