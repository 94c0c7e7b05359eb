"""The command that checks a multiplier's table: correct tables, faulty tables, and other files."""

import os
import re
import sys

import numpy as np
import pytest

import processes
from ladder.arithmetic import multipliers
from ladder.errors import UserError
from tools import check_multiplier

FAULTS = ("bits", "zero", "carry", "monotone", "symmetric")


def check(*arguments):
    return processes.python("workflow/scripts/tools/check_multiplier.py", *map(str, arguments))


def lines(result):
    """First word -> line."""
    return {line.split()[0]: line for line in result.stdout.splitlines() if line}


@pytest.mark.parametrize(
    ("kind", "error", "one", "singular_values"),
    [
        ("mitchell", "mean -3.85 %, mean absolute 3.85 %, from -11.11 % to +0.00 %", "is 1", 7),
        ("exact", "mean -0.27 %, mean absolute 0.27 %, from -0.77 % to +0.00 %", "is 1", 1),
    ],
)
def test_a_good_table_is_written_and_found_good(tmp_path, kind, error, one, singular_values):
    result = check(tmp_path / "table.bin", "--write", kind)
    found = lines(result)
    assert (result.returncode, result.stderr) == (0, "")
    assert (tmp_path / "table.bin").read_bytes() == multipliers.tabulated(kind, 7).tobytes()
    assert all(found[name].split()[1] == "ok" for name in FAULTS)
    assert error in found["error"]
    assert found["1"].endswith(one)
    assert f"; {singular_values} singular values above 0.001 of the largest" in found["rank"]
    assert "exclusive or" in found["sign"]
    assert found["no"] == "no faults"


def test_mbm_is_not_monotone_where_its_correction_ends(tmp_path):
    result = check(tmp_path / "mbm.npy", "--write", "mbm")
    found = lines(result)
    # a property of the published multiplier
    assert (result.returncode, found["no"]) == (0, "no faults")
    assert (
        "6 of 16384 entries, first [124, 126] = 0xfc: 1.96875 x 1.98438 = 3.9375, exactly 3.90674"
        in found["monotone"]
    )
    assert [name for name in FAULTS if found[name].split()[1] != "ok"] == ["monotone"]
    assert "from -7.64 % to +9.38 %" in found["error"]
    assert found["1"].endswith("is 1.09375")


@pytest.mark.parametrize(
    ("place", "entry", "faults"),
    [
        (
            (3, 5),
            0x1A,
            ("bits", "carry", "monotone", "symmetric"),
        ),  # 2^3 and 2^4 in a table of 3 bits
        ((5, 5), 0x00, ("zero", "carry", "monotone")),  # 1.625 x 1.625 = 2.64
        ((5, 5), 0x02, ("carry", "monotone")),  # 1.25 without its carry
        ((0, 0), 0x80, ("carry", "monotone")),  # 2 for 1
        # 1.75 for 1.875, as for 1.25 x 1.375 and before 1.25 x 1.625
        ((2, 4), 0x06, ("symmetric",)),
    ],
)
def test_every_planted_fault_is_named(tmp_path, place, entry, faults):
    entries = multipliers.tabulated("exact", 3)
    entries[place] = entry
    (tmp_path / "table").write_bytes(entries.tobytes())
    result = check(tmp_path / "table")
    found = lines(result)
    assert result.returncode == 1
    assert tuple(name for name in FAULTS if found[name].split()[1] != "ok") == faults
    for name in set(faults) - {"monotone"}:  # of the neighbours
        assert f"{name} 1 of 64 entries, first [{place[0]}, {place[1]}] = {entry:#04x}" in " ".join(
            found[name].split()
        )
    assert found[
        str(sum(int(found[name].split()[1]) for name in set(faults) - {"monotone"}))
    ].endswith("faults")


@pytest.mark.parametrize("bits", [1, 2, 4, 7])
def test_narrow_tables(tmp_path, bits):
    result = check(tmp_path / "table.npy", "--write", "mitchell", "--bits", bits)
    assert result.returncode == 0, result.stdout
    assert np.load(tmp_path / "table.npy").shape == (2**bits, 2**bits)
    assert f"{4**bits} entries, mantissas of {bits} bits" in result.stdout


def test_a_file_that_is_not_a_table_ends_with_2_and_one_line(tmp_path):
    (tmp_path / "short").write_bytes(bytes(100))
    (tmp_path / "full").write_bytes(bytes(16))
    np.save(tmp_path / "floats.npy", np.zeros(16))
    for arguments in [
        (tmp_path / "short",),
        (tmp_path / "absent",),
        (tmp_path,),
        (tmp_path / "floats.npy",),
        (tmp_path / "full", "--write", "mbm"),
        (tmp_path / "no/folder", "--write", "mbm"),
    ]:
        result = check(*arguments)
        assert (result.returncode, result.stdout) == (2, "")
        assert len(result.stderr.splitlines()) == 1
        assert str(arguments[0]) in result.stderr
    assert (tmp_path / "full").read_bytes() == bytes(16)


def npy(header, data=b""):
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + data


CLAIM = b"{'descr': '|u1', 'fortran_order': False, 'shape': (%s)}"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"PK\x03\x04",
        b"\x80\x04N.",
        npy(CLAIM % b"10**12,"),
        npy(CLAIM % b"1000000000000,"),
        npy(CLAIM % b"1000000000000, 4"),
        npy(CLAIM % b"18446744073709551617,"),
        npy(CLAIM % b"-1,"),
        npy(CLAIM % b"'x',"),
        npy(b"(" * 9000),
        npy(b"{" * 200),
        npy(b"\0"),
        npy(CLAIM.replace(b"|u1", b"|O") % b"4,"),
        npy(CLAIM.replace(b"|u1", b"|V0") % b"1000000000000,"),
        npy(CLAIM % b"16,", bytes(3)),
    ],
)
def test_a_damaged_npy_is_one_short_line(monkeypatch, capsys, tmp_path, data):
    (tmp_path / "table.npy").write_bytes(data)
    monkeypatch.setattr(sys, "argv", ["check_multiplier.py", str(tmp_path / "table.npy")])
    with pytest.raises(UserError, match=re.escape(f"{tmp_path}/table.npy")) as found:
        check_multiplier.main()
    assert capsys.readouterr().out == "" and len(str(found.value)) < 600


@pytest.mark.parametrize("name", ["table.npy", "table.bin"])
def test_a_sparse_file_larger_than_memory_is_refused_unread(tmp_path, name):
    (tmp_path / name).write_bytes(npy(CLAIM % b"1000000000000,"))
    os.truncate(tmp_path / name, 10**12)
    with pytest.raises(UserError, match="it has 1,000,000,000,000 bytes, 600,000 at most"):
        multipliers.read_entries(tmp_path / name)


def test_a_table_of_integers_is_described_by_the_measures_of_its_errors(tmp_path):
    sizes = np.arange(-128, 128)
    exact = np.outer(sizes, sizes)
    # the lowest two bits of a product
    np.save(tmp_path / "cut.npy", (exact & ~3).astype(np.int16))
    result = check(tmp_path / "cut.npy")
    assert (result.returncode, result.stderr) == (0, "")
    error, nonzero = exact & 3, exact != 0
    assert "the products of signed integers of 8 bits, -128 to 127" in result.stdout
    assert f"mean error             {-error.mean():+.2f}\n" in result.stdout
    assert (
        f"mean absolute error    {error.mean():.2f}, {100 * error.mean() / 65536:.3g} % of 2^16 (MAE)"
        in result.stdout
    )
    assert re.search(
        r"worst case             3, 0.00458 % of 2\^16 \(WCE\): (-?\d+) x (-?\d+) = ", result.stdout
    )
    assert f"{100 * (error[nonzero] / np.abs(exact[nonzero])).mean():.3g} % (MRE)" in result.stdout
    assert f"products with an error {100 * (error > 0).mean():.3g} % (EP)" in result.stdout
    assert f"mean squared error     {np.square(error).mean():.6g} (MSE)" in result.stdout
    assert (
        f"worst relative error   {100 * (error[nonzero] / np.abs(exact[nonzero])).max():.4g} % (WCRE)"
        in result.stdout
    )
    assert (
        "symmetric              yes" in result.stdout and "0 of 511 are not 0 here" in result.stdout
    )


def test_a_table_in_another_order_is_a_fault_and_is_rewritten(tmp_path):
    sizes = np.arange(-128, 128)
    right = np.outer(sizes, sizes).astype(np.int16)
    np.save(tmp_path / "theirs.npy", np.roll(right, (128, 128), (0, 1)))
    result = check(tmp_path / "theirs.npy", "--rewrite", tmp_path / "mine.npy")
    assert result.returncode == 1 and "1 fault: it is closer to the exact products" in result.stdout
    np.testing.assert_array_equal(np.load(tmp_path / "mine.npy"), right)
    assert check(tmp_path / "mine.npy").returncode == 0
