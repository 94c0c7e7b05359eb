"""Which order, offset and sign a table of products of integers has, told by its distance from the
exact products.
"""

import numpy as np
import pytest

from ladder.arithmetic import multipliers, readings
from ladder.errors import UserError

SIGNED, UNSIGNED = np.arange(-128, 128), np.arange(256)


def truncated(sizes, bits):
    """The products without their lowest bits, as of an array multiplier whose lowest columns are
    missing.
    """
    return np.outer(sizes, sizes) >> bits << bits


def of_mitchell():
    """Products by Mitchell's logarithms, far from symmetric errors: none is too large."""
    sizes = UNSIGNED[1:].astype(np.float32)
    table = np.zeros((256, 256))
    table[1:, 1:] = multipliers.multiply(sizes[:, None], sizes[None, :], "mit32")
    return table


# The right tables; broken: so coarse that 11 of 16 bits are missing; asymmetric: mul8s_1KTY of
# EvoApproxLib, whose first operand loses its lowest three bits.
TABLES = {
    "exact": np.outer(SIGNED, SIGNED).astype(np.int16),
    "cut": truncated(SIGNED, 4).astype(np.int16),
    "broken": truncated(SIGNED, 11).astype(np.int16),
    "asymmetric": np.outer(SIGNED >> 3 << 3, SIGNED).astype(np.int16),
    "exact, unsigned": np.outer(UNSIGNED, UNSIGNED).astype(np.uint16),
    "broken, unsigned": truncated(UNSIGNED, 14).astype(np.uint16),
    "Mitchell": of_mitchell().astype(np.uint16),
    "nothing": np.zeros((256, 256), np.uint16),
    "nothing, signed": np.zeros((256, 256), np.int16),
}


def by_bytes(table):
    return np.roll(table, (128, 128), (0, 1))


def offset(table):
    return table.view(np.uint16) + np.uint16(32768)


OTHER = {
    "signed, indexed by the operands' bytes": by_bytes,
    "signed, with 32768 added": offset,
    "signed, with the other sign": np.negative,
    "signed, with 32768 added, indexed by the operands' bytes": lambda table: by_bytes(
        offset(table)
    ),
    "signed": lambda table: table.view(np.uint16),
}


@pytest.mark.parametrize("name", TABLES)
def test_a_right_table_is_taken_as_it_is(name):
    table, words = readings.meant(TABLES[name])
    assert words == ""
    np.testing.assert_array_equal(table, TABLES[name])


@pytest.mark.parametrize("words", OTHER)
@pytest.mark.parametrize("name", ["exact", "cut", "broken", "asymmetric"])
def test_a_table_of_another_program_is_named_and_restored(name, words):
    table, found = readings.meant(OTHER[words](TABLES[name]))
    assert found == f"closer to the exact products as a table that is {words}"
    np.testing.assert_array_equal(table, TABLES[name])


def test_an_unsigned_table_kept_as_signed_is_named():
    assert readings.meant(TABLES["Mitchell"].view(np.int16))[1].endswith("that is unsigned")


@pytest.mark.parametrize("words", ["", *OTHER])
@pytest.mark.parametrize("name, bits", [("mul8s_1KTY", 3), ("mul8s_1KR8", 1), ("mul8s_1KR3", 6)])
def test_a_transposed_table_of_a_known_circuit_is_named_and_restored(name, bits, words):
    """These three are the circuits whose first operand loses its lowest bits, and nothing else."""
    right = np.outer(SIGNED >> bits << bits, SIGNED).astype(np.int16)
    assert readings.meant(right)[1] == ""
    table, found = readings.meant(OTHER.get(words, np.array)(right.T))
    assert found.endswith(f"the table of {name} with its operands exchanged (EvoApproxLib)")
    assert (f"that is {words}, and" in found) == bool(words)
    assert table.tobytes("A") == right.tobytes()


@pytest.mark.parametrize("name", ["cut", "asymmetric", "Mitchell", "broken, unsigned"])
def test_a_file_of_tfapprox_is_read_as_what_it_is(tmp_path, name):
    table = TABLES[name]
    (by_bytes(table) if table.dtype == np.int16 else table).tofile(tmp_path / "theirs.bin")
    entries = multipliers.read_entries(tmp_path / "theirs.bin")
    assert entries.dtype == table.dtype
    np.testing.assert_array_equal(entries, table)


def test_a_run_stops_at_it_and_names_the_command_that_mends_it(tmp_path):
    path = str(tmp_path / "theirs.npy")
    np.save(path, OTHER["signed, indexed by the operands' bytes"](TABLES["cut"]))
    with pytest.raises(UserError) as error:
        multipliers.check_reading(path)
    assert "indexed by the operands' bytes; check_multiplier.py" in str(error.value)
    assert "--rewrite" in str(error.value)
    for name in multipliers.MULTIPLIERS:
        multipliers.check_reading(name)
