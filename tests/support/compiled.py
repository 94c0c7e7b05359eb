"""What NVRTC and NVIDIA's disassembler say about a kernel file, cached in the user's cache folder
under a hash of sources and options.
"""

import base64
import dataclasses
import hashlib
import json
import os
import pathlib

import disassembly
from cuda_emulator import missing, with_headers
from emulated import KERNELS
from ladder.executors.cuda import nvrtc
from ladder.store import disk


def compiled(source, defines, architecture):
    """The nvrtc.Compiled of a file below kernels/."""

    def report():
        made = nvrtc.compile_file(KERNELS / source, architecture, defines)
        return {
            "cubin": base64.b64encode(made.cubin).decode(),
            "ptx": made.ptx,
            "kernels": {
                name: dataclasses.asdict(resources) for name, resources in made.kernels.items()
            },
        }

    kept = _kept("", [nvrtc.__file__], source, defines, architecture, report)
    kernels = {name: nvrtc.Resources(**resources) for name, resources in kept["kernels"].items()}
    return nvrtc.Compiled(architecture, base64.b64decode(kept["cubin"]), kept["ptx"], kernels)


def without_spills(source, defines, architecture, registers=65536):
    """As compiled; asserts that no kernel spills registers or has other local memory, and that a
    block takes so many registers at most: all of a multiprocessor, or half where two blocks fit.
    """
    made = compiled(source, defines, architecture)
    for name, resources in made.kernels.items():
        assert resources.spill_bytes == resources.stack_bytes == 0, f"{source} {defines} {name}"
        block = resources.registers * (resources.most_threads or 256)
        assert block <= registers, f"{source} {defines} {name}"
    return made


def bodies(source, defines, architecture):
    """{kernel: disassembly.Body} of a file below kernels/."""

    def report():
        made = disassembly.bodies(compiled(source, defines, architecture).cubin)
        return {name: dataclasses.asdict(body) for name, body in made.items()}

    kept = _kept(
        "-bodies", [nvrtc.__file__, disassembly.__file__], source, defines, architecture, report
    )
    return {name: disassembly.Body(**body) for name, body in kept.items()}


def _kept(what, makers, source, defines, architecture, report):
    """What report() returns, from the cache where it was made of the same texts; makers: files that
    make it.
    """
    files = [
        pathlib.Path(__file__),
        *map(pathlib.Path, makers),
        *sorted(with_headers(KERNELS / source, (KERNELS,))),
    ]
    read = [text for path in files for text in (path.name, path.read_text())]
    made_from = [architecture, *defines, str(nvrtc.version()), *read]
    digest = hashlib.sha256("\0".join(made_from).encode()).hexdigest()[:16]
    path = _cache() / f"{pathlib.Path(source).stem}{what}-{digest}.json"
    with missing(path) as absent:
        if absent:
            disk.write_atomically(path, json.dumps(report()).encode())
    return json.loads(path.read_text())


def _cache():
    folder = pathlib.Path(
        os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache", "kernel-ladder/nvrtc"
    )
    folder.mkdir(parents=True, exist_ok=True)
    return folder
