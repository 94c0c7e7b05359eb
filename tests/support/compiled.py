"""NVRTC's report on a kernel file, cached in the user's cache folder under a hash of sources and options."""

import dataclasses
import hashlib
import json
import os
import pathlib

from cuda_emulator import KERNELS, with_headers
from ladder.executors.cuda import nvrtc
from ladder.store import disk


def compiled(source, defines, architecture):
    """The nvrtc.Compiled of a file below kernels/, without its machine code."""
    read = [text for path in sorted(with_headers(KERNELS / source)) for text in (path.name, path.read_text())]
    made_from = [architecture, *defines, str(nvrtc.version()), pathlib.Path(nvrtc.__file__).read_text(), *read]
    digest = hashlib.sha256("\0".join(made_from).encode()).hexdigest()[:16]
    path = _cache() / f"{pathlib.Path(source).stem}-{digest}.json"
    if not path.exists():
        made = nvrtc.compile_file(KERNELS / source, architecture, defines)
        kernels = {name: dataclasses.asdict(resources) for name, resources in made.kernels.items()}
        disk.write_atomically(path, json.dumps({"ptx": made.ptx, "kernels": kernels}).encode())
    found = json.loads(path.read_text())
    kernels = {name: nvrtc.Resources(**resources) for name, resources in found["kernels"].items()}
    return nvrtc.Compiled(architecture, b"", found["ptx"], kernels)


def _cache():
    folder = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache", "kernel-ladder/nvrtc")
    folder.mkdir(parents=True, exist_ok=True)
    return folder
