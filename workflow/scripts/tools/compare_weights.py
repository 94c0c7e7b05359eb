"""Compare two weights files, tensor by tensor: weights.bin of an autoencoder, or
weights.safetensors of any network.

A and B are files, folders of artifacts, or versions such as t35523d95825, or their first
characters.

A weights.bin does not name its tensors. They are those of the network in the manifest beside either
file; without one those of the autoencoder of 751,875 parameters, if the file is as large; else all
values are compared in a row.

Prints for each tensor the largest and mean absolute difference, |A - B| / |A|, and the first
element that differs by more than the tolerance. Exit status: 0 if all tensors are within the
tolerance, 1 if one is not, 2 if a file cannot be read. NaN differs from everything, NaN included.
"""

import pathlib
import re
import sys

import numpy as np

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))

from ladder.errors import UserError
from ladder.network import networks, weights
from ladder.stage import command
from ladder.store import lineage, manifests

FILES = ("weights.bin", "weights.safetensors")
VERSION = re.compile("[a-z][0-9a-f]{0,11}")  # or its first characters


def main():
    arguments = parse()
    a, b = read(*(file_of(name, arguments.results) for name in (arguments.a, arguments.b)))
    check_alike(a, b)
    width = max(map(len, a)) + 2
    print(
        f"{'tensor':<{width}}{'shape':<20}{'largest':>12}{'mean':>12}{'relative':>12}  first beyond {arguments.tolerance:g}"
    )
    rows = [compare(a[name], b[name], arguments.tolerance) for name in a]
    for name, (largest, mean, relative, first) in zip(a, rows, strict=True):
        place = (
            "-"
            if first is None
            else f"{list(first)}: {a[name][first]:.8g} and {b[name][first]:.8g}"
        )
        print(
            f"{name:<{width}}{'x'.join(map(str, a[name].shape)):<20}{largest:>12.4g}{mean:>12.4g}{relative:>12.4g}  {place}"
        )
    differing = sum(first is not None for *_, first in rows)
    print(
        f"{differing} of {len(rows)} tensors differ by more than {arguments.tolerance:g}"
        if differing
        else f"all {len(rows)} tensors are within {arguments.tolerance:g}"
    )
    return 1 if differing else 0


def file_of(name, results):
    """The weights file that `name` stands for: a file, the folder of an artifact, or a version
    below the folder `results`.
    """
    path = pathlib.Path(name)
    if VERSION.fullmatch(name) and not path.exists():
        store = lineage.Store(results)
        path = store.folders()[lineage.resolve(store, name)]
    if not path.is_dir():
        return path
    files = manifest_of(path)["files"]
    for file in FILES:
        if file in files:
            manifests.check(path, file, files)
            return path / file
    raise UserError(
        f"{path} holds no weights; artifacts of the stages initial, patches and train do"
    )


def read(*paths):
    """For each of two files: tensor name -> array as in the file."""
    known = [network_of(path) for path in paths]
    default = networks.build("autoencoder")
    return [
        tensors(weights.contents(path), [*filter(None, (own, *known)), default])
        for path, own in zip(paths, known, strict=True)
    ]


def tensors(contents, candidates):
    """Tensor name -> array, from a file's contents and the networks that it may be of, the
    likeliest first.
    """
    if isinstance(contents, dict):
        return contents
    fitting = [network for network in candidates if weights.value_count(network) == len(contents)]
    return weights.named(contents, fitting[0]) if fitting else {"values": contents}


def network_of(path):
    """The network in the manifest beside a file; None without a manifest that names one."""
    try:
        return networks.from_params(manifest_of(path.parent)["spec"]["params"])
    except (UserError, KeyError):  # no manifest, a damaged one, or one of another stage
        return None


def manifest_of(folder):
    """The manifest of an artifact, in a folder of any name."""
    try:
        return manifests.decoded(folder / manifests.MANIFEST)
    except FileNotFoundError:
        raise UserError(f"{folder} holds no finished artifact") from None


def check_alike(a, b):
    for name in [*a, *b]:
        if name not in a or name not in b or a[name].shape != b[name].shape:
            shapes = [values[name].shape if name in values else "missing" for values in (a, b)]
            raise UserError(
                f"these are weights of two networks: {ascii(name[:80])[1:-1]} is {shapes[0]} in one and "
                f"{shapes[1]} in the other"
            )


def compare(a, b, tolerance):
    """(largest |a - b|, mean |a - b|, |a - b| / |a|, index of the first element beyond the
    tolerance or None).
    """
    a, b = a.astype(np.float64), b.astype(np.float64)
    # Equal infinities do not differ; a comparison with NaN is false, so `not within` includes it.
    with np.errstate(invalid="ignore"):
        difference = np.where(a == b, 0.0, np.abs(a - b))
    beyond = np.flatnonzero(~(difference <= tolerance))
    first = tuple(int(i) for i in np.unravel_index(beyond[0], a.shape)) if len(beyond) else None
    norm, distance = np.linalg.norm(a), np.linalg.norm(difference)
    return (
        difference.max(initial=0),
        difference.sum() / max(1, difference.size),
        distance / norm if norm else distance,
        first,
    )


def parse():
    parser = command.parser(__doc__)
    parser.add_argument("a", metavar="A")
    parser.add_argument("b", metavar="B")
    parser.add_argument(
        "--tolerance",
        type=float,
        default=1e-4,
        help="largest absolute difference allowed (default 1e-4)",
    )
    parser.add_argument(
        "--results",
        type=pathlib.Path,
        default=pathlib.Path("results"),
        help="where versions are looked for",
    )
    return parser.parse_args()


if __name__ == "__main__":
    command.run(main)
