"""Check the table of a multiplier (the configuration's `multiplier`) and describe the multiplier.

The table holds the products of all pairs of m-bit mantissas, m from 1 to 7: 4^m bytes, or a .npy of
them. Entry (i << m) | j stands for (1 + i / 2^m)(1 + j / 2^m): its low m bits are the mantissa, bit
7 is the carry (the product is at least 2).

Faults reported:
  bits        an entry has bits outside its carry and its mantissa
  zero        an entry is 0, which means 1.0, although the product is 1.5 or more
  carry       the entry would be closer to the product with the other carry
  symmetric   a x b differs from b x a

Reported without being a fault, because published multipliers do so (MBM where its correction ends):
  monotone    a larger operand gives a smaller product

A table of the products of all integers of 8 bits is a .npy, int16 or uint16 (256, 256), or the
131,072 bytes of TFApprox; docs/multipliers.md says which entry is which product. Its one fault is
that it is closer to the exact products when it is read otherwise, or that it is a known circuit's
with the operands exchanged: --rewrite writes what is meant.
The measures of its errors are those of EvoApproxLib.

Exit status: 0 for a table without faults, 1 for one with faults, 2 for a file that is not a table.
"""

import pathlib
import sys

import numpy as np

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))

from ladder.arithmetic import multipliers, readings
from ladder.errors import UserError
from ladder.stage import command
from ladder.store import disk

REMARKS = ("monotone",)  # reported, but no faults
NOTICEABLE = 1e-3  # of the largest singular value


def main():
    arguments = parse()
    if arguments.write:
        write(arguments.table, arguments.write, arguments.bits)
    entries = multipliers.read_entries(arguments.table)
    if entries.dtype != np.uint8:
        table, words = readings.meant(entries)
        if arguments.rewrite:
            save(arguments.rewrite, table)
        print("\n".join(facts_of_integers(multipliers.Integers(str(arguments.table), entries))))
        if words:
            print(f"\n1 fault: it is {words}; --rewrite FILE.npy writes what is meant")
        return 1 if words else 0
    faulty = faults(entries)
    print(
        "\n".join(
            [
                f"{arguments.table}: {entries.size} entries, mantissas of {bits_of(entries)} bits",
                "",
                *(fault_line(entries, name, places) for name, places in faulty.items()),
                *facts(entries),
            ]
        )
    )
    count = sum(len(places) for name, places in faulty.items() if name not in REMARKS)
    print(f"\n{count} faults" if count else "\nno faults")
    return 1 if count else 0


def write(path, kind, bits):
    """Write the table of `exact`, `mitchell` or `mbm` as an example."""
    if path.exists():
        raise UserError(f"{path} already exists; remove it first, or name another file")
    save(path, multipliers.tabulated(kind, bits))


def save(path, entries):
    try:
        if path.suffix == ".npy":
            np.save(path, entries)
        else:
            disk.write_atomically(path, entries.tobytes())
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}") from error


def faults(entries):
    """Kind of fault or remark -> indices (i, j) of the entries that have it."""
    products, exact = table_products(entries), exact_products(entries)
    other = np.where(entries & multipliers.CARRY, products / 2, products * 2)
    falls_down, falls_along = np.zeros(entries.shape, bool), np.zeros(entries.shape, bool)
    falls_down[1:], falls_along[:, 1:] = (
        products[1:] < products[:-1],
        products[:, 1:] < products[:, :-1],
    )
    return {
        "bits": multipliers.stray_bits(entries),
        "zero": places((entries == 0) & (exact >= 1.5)),
        "carry": places(np.abs(other - exact) < np.abs(products - exact)),
        "monotone": places(falls_down | falls_along),
        "symmetric": [(i, j) for i, j in places(entries != entries.T) if i < j],
    }


def facts(entries):
    """Lines that describe the table."""
    products, exact = table_products(entries), exact_products(entries)
    error, rank = 100 * (products - exact) / exact, np.linalg.matrix_rank(products)
    spectrum = np.linalg.svd(products, compute_uv=False)
    return [
        "sign        not checked: a table of mantissas has none, the product's is the exclusive or of the operands'",
        "",
        f"error       over all {len(entries)} x {len(entries)} mantissas: mean {error.mean():+.2f} %, mean absolute "
        f"{np.abs(error).mean():.2f} %, from {error.min():+.2f} % to {error.max():+.2f} %",
        f"1 x 1       is {products[0, 0]:g}",
        f"rank        of the matrix of products: {rank} of {len(entries)} (the exact products': 1); "
        f"{int((spectrum > NOTICEABLE * spectrum[0]).sum())} singular values above {NOTICEABLE:g} of the largest",
    ]


def facts_of_integers(multiplier):
    """Lines that describe a table of products of integers."""
    first = -128 if multiplier.signed else 0
    sizes = np.arange(first, first + multipliers.INTEGERS)
    exact, products = np.outer(sizes, sizes), multiplier.entries.astype(int)
    error, with_zero, kind = (
        np.abs(products - exact),
        exact == 0,
        "signed" if multiplier.signed else "unsigned",
    )
    relative = error[~with_zero] / np.abs(exact[~with_zero])
    wrong = np.count_nonzero(products[with_zero])
    i, j = np.unravel_index(error.argmax(), error.shape)
    return [
        f"{multiplier.name}: the products of {kind} integers of 8 bits, {sizes[0]} to {sizes[-1]}",
        "",
        f"mean error             {(products - exact).mean():+.2f}",
        f"mean absolute error    {error.mean():.2f}, {100 * error.mean() / error.size:.3g} % of 2^16 (MAE)",
        f"worst case             {error[i, j]}, {100 * error[i, j] / error.size:.3g} % of 2^16 (WCE): "
        f"{sizes[i]} x {sizes[j]} = {products[i, j]}, exactly {exact[i, j]}",
        f"mean squared error     {np.square(error).mean():.6g} (MSE)",
        f"mean relative error    {100 * relative.mean():.3g} % (MRE)",
        f"worst relative error   {100 * relative.max():.4g} % (WCRE)",
        f"products with an error {100 * (error > 0).mean():.3g} % (EP)",
        f"symmetric              {'yes' if (products == products.T).all() else 'no: the row is the image'}",
        f"products with 0        {wrong} of {with_zero.sum()} are not 0 here, and taken as 0",
    ]


def fault_line(entries, name, indices):
    if not indices:
        return f"{name:<12}ok"
    i, j = indices[0]
    product, exact = table_products(entries)[i, j], exact_products(entries)[i, j]
    return (
        f"{name:<12}{len(indices)} of {entries.size} entries, first [{i}, {j}] = {entries[i, j]:#04x}: "
        f"{operand(entries, i):g} x {operand(entries, j):g} = {product:g}, exactly {exact:g}"
    )


def table_products(entries):
    """The table's products, float64."""
    fraction = (entries & (len(entries) - 1)) / len(entries)
    return (1 + fraction) * np.where(entries & multipliers.CARRY, 2, 1)


def exact_products(entries):
    """The exact products, float64."""
    operands = operand(entries, np.arange(len(entries)))
    return np.outer(operands, operands)


def operand(entries, mantissa):
    return 1 + mantissa / len(entries)


def bits_of(entries):
    return len(entries).bit_length() - 1


def places(mask):
    return [(int(i), int(j)) for i, j in np.argwhere(mask)]


def parse():
    parser = command.parser(__doc__)
    parser.add_argument("table", type=pathlib.Path, metavar="TABLE")
    parser.add_argument(
        "--write", choices=("exact", "mitchell", "mbm"), help="write TABLE first, as an example"
    )
    parser.add_argument(
        "--rewrite",
        type=pathlib.Path,
        metavar="FILE.npy",
        help="write a table of integers as it is meant: in "
        "the reading that is closest to the exact products",
    )
    parser.add_argument(
        "--bits",
        type=int,
        choices=range(1, multipliers.MOST_TABLE_BITS + 1),
        default=7,
        metavar="M",
        help="mantissa bits for --write, 1 to 7 (default 7)",
    )
    return parser.parse_args()


if __name__ == "__main__":
    command.run(main)
