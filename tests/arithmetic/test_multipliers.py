"""The multipliers against their definitions: the published values, every special case, a million
pairs, errors, tables.
"""

import numpy as np
import pytest

import multiplier_references as references
from ladder.arithmetic import multipliers
from ladder.arithmetic.multipliers import FORMATS, MULTIPLIERS, Table, tabulated
from ladder.errors import UserError

BY_FORMULA = [name for name in references.NAMES if name != "exact"]
FLUSHING = [name for name in BY_FORMULA if name not in ("fp16", *FORMATS)]
F = np.float32
INF, NAN = F(np.inf), F(np.nan)
PUBLISHED = [  # a, b, exact, mit32, mit16, am32, am16
    (1.5, 1.5, 2.25, 2.0, 2.0, 2.078125, 2.109375),
    (1.25, 1.25, 1.5625, 1.5, 1.5, 1.578125, 1.59375),
    (3, 5, 15, 14, 14, 14.625, 14.75),
    (1, 1, 1, 1, 1, 1.078125, 1.09375),
    (1.46875, 1.46875, 2.1572265625, 1.9375, 1.9375, 2.015625, 2.03125),
    (1.984375, 1.984375, 3.937744140625, 3.9375, 3.9375, 3.9375, 3.96875),
]


def multiply(a, b, name):
    return multipliers.multiply(a, b, FORMATS.get(name, name))


def bits(value):
    return int(np.asarray(value, np.float32).view(np.uint32))


def test_the_multipliers_are_those_of_a_stages_parameters(tmp_path):
    assert multipliers.from_params({}, "am32") is multipliers.EXACT and multipliers.EXACT.exact
    everywhere = multipliers.from_params({"multiplier": "am32"}, "am32")
    assert (
        everywhere == multipliers.ByDirection(*[MULTIPLIERS["am32"]] * 3) and not everywhere.exact
    )
    rounded = multipliers.from_params({"precision": "tf32"}, "exact")
    assert rounded == multipliers.ByDirection(*[FORMATS["tf32"]] * 3) and not rounded.exact
    some = multipliers.from_params({"multiplier": "fp16", "multiplier_in": ["weight_grad"]}, "fp16")
    assert (some.forward.name, some.input_grad.name, some.weight_grad.name) == (
        "exact",
        "exact",
        "fp16",
    )
    path = tmp_path / "table.bin"
    path.write_bytes(tabulated("mitchell", 2).tobytes())
    identity = multipliers.identity(path)
    assert multipliers.from_params(
        {"multiplier": identity}, path
    ).forward.digest == identity.removeprefix("table ")
    path.write_bytes(tabulated("mbm", 2).tobytes())
    with pytest.raises(UserError, match="changed after this run was planned"):
        multipliers.from_params({"multiplier": identity}, path)


@pytest.mark.parametrize("values", PUBLISHED, ids=str)
def test_published_products_with_every_sign(values):
    a, b, *expected = values
    for name, product in zip(("exact", "mit32", "mit16", "am32", "am16"), expected, strict=True):
        for sign_a in (1, -1):
            for sign_b in (1, -1):
                assert multiply(F(sign_a * a), F(sign_b * b), name) == sign_a * sign_b * product
    assert multiply(F(3.14159265), F(2.71828), "acc16") == 8.4375


def test_published_entries_of_tables():
    for kind, expected in (("mbm", (0x87, 0x4C, 0x0C)), ("mitchell", (0x80, 0x40, 0x00))):
        entries = tabulated(kind, 7)
        assert tuple(int(entries[i, i]) for i in (64, 32, 0)) == expected


@pytest.mark.parametrize(
    ("name", "grid", "mean", "mean_absolute", "least", "largest"),
    [
        ("mit32", 10, -3.85, 3.85, -11.11, 0),
        ("mit16", 7, -3.85, 3.85, -11.11, 0),
        ("am32", 10, -0.10, 2.58, -7.64, 7.81),
        ("am16", 7, None, None, -7.64, 9.375),
        ("acc16", 7, -0.27, 0.27, -0.77, 0),
    ],
)
def test_published_errors_over_uniform_mantissas(name, grid, mean, mean_absolute, least, largest):
    # The published values of the narrow multipliers are over the mantissas that they distinguish.
    values = (1 + np.arange(2**grid) / 2**grid).astype(np.float32)
    exact = np.outer(values.astype(np.float64), values)
    error = 100 * (multiply(values[:, None], values, name) - exact) / exact
    assert (error.min(), error.max()) == (
        pytest.approx(least, abs=0.006),
        pytest.approx(largest, abs=0.006),
    )
    if mean is not None:
        assert error.mean() == pytest.approx(mean, abs=0.01)
        assert np.abs(error).mean() == pytest.approx(mean_absolute, abs=0.01)


# ---- special cases


@pytest.mark.parametrize("name", FLUSHING)
def test_a_zero_or_subnormal_operand_or_result_is_plus_zero(name):
    smallest, subnormal = F(2.0**-126), F(1e-40)
    for a, b in [
        (0, 3),
        (-0.0, 3),
        (0, -3),
        (0, 0),
        (subnormal, 3),
        (-subnormal, 1e30),
        (subnormal, subnormal),
        (smallest, 0.25),
        (-smallest, 0.5),
        (1e-30, -1e-30),
    ]:
        assert bits(multiply(F(a), F(b), name)) == 0
        assert bits(multiply(F(b), F(a), name)) == 0
    # the least normal exponent is no zero
    assert bits(multiply(smallest, F(-1), name)) >> 23 == 0x101


@pytest.mark.parametrize("name", FLUSHING)
def test_an_exponent_too_large_is_infinity_with_its_sign(name):
    most = np.finfo(np.float32).max
    for a, b, expected in [
        (most, most, INF),
        (-most, 2, -INF),
        (2.0**127, -2, -INF),
        (-most, -most, INF),
    ]:
        assert multiply(F(a), F(b), name) == expected
    assert np.isfinite(multiply(F(2.0**126), F(2), name))


def test_the_correction_alone_can_overflow_and_lift_above_the_least_normal():
    a, b = F(2.0**64 * 1.4375), F(2.0**63 * 1.5)  # x + y < 1 <= x + y + c
    assert multiply(a, b, "mit32") == F(2.0**127 * 1.9375)
    assert multiply(a, b, "am32") == INF
    a, b = F(2.0**-64 * 1.4375), F(2.0**-63 * 1.5)
    assert multiply(a, b, "mit32") == 0
    assert multiply(a, b, "am32") == F(2.0**-126 * (1 + (0.9375 + 5 / 64 - 1) / 2))


@pytest.mark.parametrize("name", BY_FORMULA)
def test_infinite_and_nan_operands_give_the_exact_product_and_a_single_nan(name):
    for a, b, expected in [(INF, 2, INF), (-INF, 2, -INF), (-INF, -INF, INF), (INF, -INF, -INF)]:
        assert multiply(F(a), F(b), name) == expected
        assert multiply(F(b), F(a), name) == expected
    # its payload is below the bits of a bfloat16 and of a half
    low = np.uint32(0x7F800001).view(np.float32)
    for a, b in [
        (INF, 0),
        (-INF, -0.0),
        (NAN, 1),
        (NAN, 0),
        (NAN, INF),
        (-NAN, 1),
        (low, 1),
        (low, low),
        (low, 0),
    ]:
        assert bits(multiply(F(a), F(b), name)) == 0x7FC00000
        assert bits(multiply(F(b), F(a), name)) == 0x7FC00000


@pytest.mark.parametrize("name", FLUSHING)
def test_infinity_times_a_subnormal_is_the_exact_product_too(name):
    assert multiply(INF, F(1e-40), name) == INF
    assert multiply(F(-1e-45), INF, name) == -INF


@pytest.mark.parametrize("name, bits_kept, tie", [("tf32", 10, 1.0), ("bfloat16", 7, 0.0)])
def test_formats_of_tensor_cores_round_the_operands_and_not_the_product(name, bits_kept, tie):
    unit = 2.0**-bits_kept
    # a tie: away from zero, or to even
    assert multiply(F(1 + unit / 2), F(1), name) == 1 + tie * unit
    assert multiply(F(-1 - unit * 1.5), F(1), name) == -1 - 2 * unit
    assert multiply(F(1 + unit / 2 - 2.0**-23), F(1), name) == 1
    # not rounded to bits_kept
    assert multiply(F(1 + unit), F(1 + unit), name) == 1 + 2 * unit + unit * unit
    assert multiply(F(2.0**-130), F(2.0), name) == 2.0**-129 and np.signbit(
        multiply(F(-0.0), F(1), name)
    )
    assert multiply(F(3.4e38), F(1), name) == (
        np.inf if name == "bfloat16" else F(3.4e38).item() // 2**117 * 2**117
    )
    assert bits(multiply(np.uint32(0x7F800001).view(F), F(1), name)) == references.NAN


def test_float16_rounds_the_operands_to_ieee_halves_and_not_the_product():
    for a, expected in [
        (1 + 2**-11, 1),
        (1 + 3 * 2**-11, 1 + 2**-9),
        (65519, 65504),
        (65520, np.inf),
        (2**-25, 0),
        (3 * 2**-25, 2**-23),
        (np.inf, np.inf),
    ]:
        assert (
            multiply(F(a), F(1), "float16") == expected
            and multiply(F(1), F(-a), "float16") == -expected
        )
    assert multiply(F(1 + 2**-10), F(1 + 2**-10), "float16") == 1 + 2**-9 + 2**-20
    assert (
        multiply(F(300), F(300), "float16") == 90000
        and multiply(F(2**-20), F(2**-20), "float16") == 2**-40
    )
    assert np.isnan(multiply(F(1e6), F(1e-9), "float16")) and np.signbit(
        multiply(F(-0.0), F(1), "float16")
    )


def test_fp16_is_ieee_half():
    for a, b, expected in [
        (1 + 2**-11, 1, 1),
        (1 + 3 * 2**-11, 1, 1 + 2**-9),
        (255, 257, np.inf),
        (65519, 1, 65504),
        (65520, 1, np.inf),
        (2**-14, 0.5, 2**-15),
        (2**-12, 2**-12, 2**-24),
        (2**-24, 1, 2**-24),
        (2**-12, 2**-13, 0),
        (3 * 2**-13, 2**-12, 2**-23),
        (2**-25, 1, 0),
        (1e6, 0.5, np.inf),
    ]:
        assert multiply(F(a), F(b), "fp16") == F(expected)
        assert multiply(F(-a), F(b), "fp16") == -F(expected)
    assert np.signbit(multiply(F(-1), F(0), "fp16"))
    assert np.isnan(multiply(F(1e6), F(1e-9), "fp16"))  # as halves infinity and zero


# ---- against the definitions


@pytest.mark.parametrize("name", BY_FORMULA)
def test_pairs_equal_the_definition_in_fractions_to_the_bit(name):
    """kernels/test_multipliers.py compares a million more with what kernels compute."""
    a, b = references.pairs(2704 + 8000, seed=1)
    expected = [
        references.scalar(int(x), int(y), name)
        for x, y in zip(a.view(np.uint32), b.view(np.uint32), strict=True)
    ]
    product = multiply(a, b, name)
    assert product.dtype == np.float32
    assert np.array_equal(product.view(np.uint32), np.array(expected, np.uint32))


@pytest.mark.parametrize(("bit_count", "seed"), [(1, 0), (2, 1), (5, 2), (7, 3)])
def test_a_table_equals_its_definition_to_the_bit(bit_count, seed):
    table = Table("random", references.random_table(bit_count, seed))
    a, b = references.pairs(2704 + 6000, seed)
    expected = [
        references.table_product(int(x), int(y), table.entries)
        for x, y in zip(a.view(np.uint32), b.view(np.uint32), strict=True)
    ]
    assert np.array_equal(multiply(a, b, table).view(np.uint32), np.array(expected, np.uint32))
    assert np.array_equal(
        multiply(b, a, table.flipped).view(np.uint32), np.array(expected, np.uint32)
    )


@pytest.mark.parametrize(
    ("kind", "name"), [("exact", "acc16"), ("mitchell", "mit16"), ("mbm", "am16")]
)
def test_tables_of_seven_bits_are_the_narrow_multipliers(kind, name):
    a, b = references.pairs(200_000, seed=2)
    assert references.same_bits(
        multiply(a, b, Table(kind, tabulated(kind, 7))), multiply(a, b, name)
    ).all()


def test_shapes_broadcast_and_other_dtypes_are_refused():
    assert multiply(np.ones((3, 1), np.float32), np.ones(4, np.float32), "mit32").shape == (3, 4)
    assert multiply(np.ones((2, 3), np.float32).T, np.ones((3, 2), np.float32), "am16").shape == (
        3,
        2,
    )
    with pytest.raises(TypeError, match="float64"):
        multiply(np.ones(2), np.ones(2, np.float32), "mit32")


# ---- names and files


def test_find_knows_every_name_and_suggests_the_nearest(tmp_path):
    assert [multipliers.find(name).name for name in MULTIPLIERS] == [
        name for name in references.NAMES if name not in FORMATS
    ]
    with pytest.raises(
        UserError,
        match="there is no multiplier 'am23'; it must be exact, .* a table; did you mean am32?",
    ):
        multipliers.find("am23")
    with pytest.raises(UserError, match="there is no multiplier"):
        multiply(F(1), F(1), str(tmp_path / "missing.bin"))


@pytest.mark.parametrize("bit_count", range(1, 8))
@pytest.mark.parametrize("form", ["bytes", "flat", "square"])
def test_tables_are_read_from_bytes_and_npy(tmp_path, bit_count, form):
    entries = references.random_table(bit_count)
    path = tmp_path / ("table.bin" if form == "bytes" else "table.npy")
    if form == "bytes":
        path.write_bytes(entries.tobytes())
    else:
        np.save(path, entries if form == "square" else entries.reshape(-1))
    table = multipliers.find(str(path))
    assert table.bits == bit_count
    assert np.array_equal(table.entries, entries)
    assert table.digest == Table("other", entries.copy()).digest


@pytest.mark.parametrize("content", [b"", b"\0", bytes(100), bytes(16383), bytes(4**8)], ids=len)
def test_a_file_of_another_size_is_refused(tmp_path, content):
    (tmp_path / "table").write_bytes(content)
    with pytest.raises(
        UserError,
        match=f"has {len(content)} entries of uint8, but a multiplier table has .* 4, 16, 64",
    ):
        multipliers.load_table(tmp_path / "table")


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros(16, np.int8), "is int8, but the entries of a multiplier table are uint8"),
        (np.zeros(16, np.float32), "is float32, but"),
        (np.zeros((256, 256), np.int32), "is int32, but .* or int16 or uint16"),
        (
            np.zeros((2, 8), np.uint8),
            r"is \(2, 8\), but a multiplier table of 16 entries is \(16,\) or \(4, 4\)",
        ),
        (np.zeros((3, 3), np.uint8), "has 9 entries"),
    ],
)
def test_an_npy_with_another_dtype_or_shape_is_refused(tmp_path, array, message):
    np.save(tmp_path / "table.npy", array)
    with pytest.raises(UserError, match=message):
        multipliers.load_table(tmp_path / "table.npy")


def test_a_file_that_is_not_a_table_is_refused(tmp_path):
    (tmp_path / "text.npy").write_text("no array")
    for path, message in (
        (tmp_path / "text.npy", "is not a .npy file"),
        (tmp_path / "none", "cannot read .*: No such file"),
    ):
        with pytest.raises(UserError, match=message):
            multipliers.load_table(path)
    np.save(tmp_path / "objects.npy", np.array([None] * 16), allow_pickle=True)
    with pytest.raises(UserError, match="is not a .npy file of numbers"):
        multipliers.load_table(tmp_path / "objects.npy")


def test_bits_between_mantissa_and_carry_are_refused():
    entries = np.zeros((4, 4), np.uint8)
    entries[1, 2] = 0x04
    with pytest.raises(UserError, match=r"entry \[1, 2\] is 0x04, but with mantissas of 2 bits"):
        Table("stray", entries)


# ---- integers of 8 bits


@pytest.mark.parametrize("signed", [True, False])
def test_products_of_integers_are_the_tables_and_with_zero_they_are_zero(tmp_path, signed):
    entries = references.random_integers(signed)
    np.save(tmp_path / "products.npy", entries)
    multiplier = multipliers.find(str(tmp_path / "products.npy"))
    most = 127 if signed else 255
    a, b = np.meshgrid(np.arange(-most, most + 1), np.arange(-most, most + 1), indexing="ij")
    wanted = entries[a + 128, b + 128] if signed else entries[np.abs(a), np.abs(b)] * np.sign(a * b)
    assert np.array_equal(
        multiply(a.astype(np.float32), b.astype(np.float32), multiplier),
        np.where(a * b == 0, 0, wanted),
    )
    assert np.count_nonzero(wanted[a * b == 0]) > 0 or not signed  # the rule changed something
    assert np.array_equal(multiplier.flipped.words, multiplier.words.T)
    assert not np.array_equal(multiplier.words, multiplier.words.T)


def test_tables_of_integers_have_the_identity_of_their_entries_and_type(tmp_path):
    entries, names = (
        np.minimum(references.random_integers(False), 2**15 - 1),
        ("signed", "unsigned", "flat"),
    )
    for name, array in zip(
        names, (entries.astype(np.int16), entries, entries.reshape(-1)), strict=True
    ):
        np.save(tmp_path / f"{name}.npy", array)
    signed, unsigned, flat = (multipliers.identity(str(tmp_path / f"{name}.npy")) for name in names)
    assert signed.startswith("integers ") and signed != unsigned == flat


@pytest.mark.parametrize(
    "array", [np.zeros((128, 128), np.int16), np.zeros(65535, np.uint16), np.zeros(16, np.int16)]
)
def test_a_table_of_integers_has_all_their_products(tmp_path, array):
    np.save(tmp_path / "few.npy", array)
    with pytest.raises(
        UserError,
        match=rf"few.npy has {array.size} entries of u?int16, but a multiplier table has 65536",
    ):
        multipliers.load_table(tmp_path / "few.npy")


@pytest.mark.parametrize(
    "values, most, integers, scale",
    [
        ([0.5, -1.5, 2.5, 127], 127, [0, -2, 2, 127], 1),  # ties to even
        ([-2, 1, 0.004], 127, [-127, 64, 0], 2 / 127),
        ([-2, 1.01, 0.004], 255, [-255, 129, 1], 2 / 255),
        ([0, -0.0], 127, [0, 0], 1),
        # 143 times the least number: a unit of it would be too large
        ([2e-43, -1e-45], 127, [127, -1], 1.4e-45),
        ([1, np.inf], 127, [0, 0], np.inf),
        ([1, np.nan, 3], 127, [0, 0, 0], np.nan),
    ],
)
def test_an_operand_is_quantised_by_its_largest_magnitude(values, most, integers, scale):
    found, unit = multipliers.quantised(np.float32(values), most)
    assert found.dtype == unit.dtype == np.float32
    assert np.array_equal(found, integers) and np.array_equal(
        unit, np.float32(scale), equal_nan=True
    )
