"""Compare two weights files, tensor by tensor: weights.bin of an autoencoder, or weights.safetensors of any network.

The network of a weights.bin is taken from the manifest beside it; without one it is the autoencoder of 751,875 parameters.

Prints for each tensor the largest and mean absolute difference, |A - B| / |A|, and the first element that differs by more
than the tolerance. Exit status: 0 if all tensors are within the tolerance, 1 if one is not, 2 if a file cannot be read.
NaN differs from everything, NaN included.
"""

import argparse
import json
import pathlib
import sys

import numpy as np
import safetensors.numpy

from ladder.errors import UserError
from ladder.network import networks, weights


def main():
    arguments = parse()
    try:
        a, b = read(arguments.a), read(arguments.b)
        check_alike(a, b)
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    width = max(map(len, a)) + 2
    print(f"{'tensor':<{width}}{'shape':<20}{'largest':>12}{'mean':>12}{'relative':>12}  first beyond {arguments.tolerance:g}")
    rows = [compare(a[name], b[name], arguments.tolerance) for name in a]
    for name, (largest, mean, relative, first) in zip(a, rows, strict=True):
        place = "-" if first is None else f"{list(first)}: {a[name][first]:.8g} and {b[name][first]:.8g}"
        print(f"{name:<{width}}{'x'.join(map(str, a[name].shape)):<20}{largest:>12.4g}{mean:>12.4g}{relative:>12.4g}  {place}")
    differing = sum(first is not None for *_, first in rows)
    print(f"{differing} of {len(rows)} tensors differ by more than {arguments.tolerance:g}" if differing else
          f"all {len(rows)} tensors are within {arguments.tolerance:g}")
    return 1 if differing else 0


def read(path):
    """Tensor name -> array as in the file."""
    if path.suffix == ".safetensors":
        try:
            return safetensors.numpy.load_file(path)
        except (OSError, safetensors.SafetensorError) as error:
            raise UserError(f"cannot read {path}: {error}") from error
    return weights.read(path, network_of(path))


def network_of(path):
    try:
        return networks.from_params(json.loads((path.parent / "manifest.json").read_text())["spec"]["params"])
    except (OSError, ValueError, KeyError):
        return networks.build("autoencoder")


def check_alike(a, b):
    for name in [*a, *b]:
        if name not in a or name not in b or a[name].shape != b[name].shape:
            shapes = [one[name].shape if name in one else "missing" for one in (a, b)]
            raise UserError(f"these are weights of two networks: {name} is {shapes[0]} in one and {shapes[1]} in the other")


def compare(a, b, tolerance):
    """(largest |a - b|, mean |a - b|, |a - b| / |a|, index of the first element beyond the tolerance or None)."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    # Equal infinities do not differ; a comparison with NaN is false, so `not within` includes it.
    with np.errstate(invalid="ignore"):
        difference = np.where(a == b, 0.0, np.abs(a - b))
    beyond = np.flatnonzero(~(difference <= tolerance))
    first = tuple(int(i) for i in np.unravel_index(beyond[0], a.shape)) if len(beyond) else None
    norm, distance = np.linalg.norm(a), np.linalg.norm(difference)
    return difference.max(), difference.mean(), distance / norm if norm else distance, first


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("a", type=pathlib.Path, metavar="A")
    parser.add_argument("b", type=pathlib.Path, metavar="B")
    parser.add_argument("--tolerance", type=float, default=1e-4, help="largest absolute difference allowed (default 1e-4)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
