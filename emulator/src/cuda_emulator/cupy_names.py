"""CuPy's RawKernel and RawModule on NumPy arrays: the same calls, run by the emulator.

kernel = RawKernel(text, "add")
kernel((blocks,), (256,), (x, y, x.size))
"""

import cuda_emulator


def RawKernel(code, name, options=()):
    """The kernel `name` of a text of CUDA C++; raises KeyError and CompileError as load does."""
    return RawModule(code=code, options=options).get_function(name)


class RawModule:
    """The kernels of a text or of a file; name_expressions may name instances of its templates."""

    def __init__(self, *, code=None, path=None, options=(), name_expressions=()):
        folders = [option.removeprefix("-I") for option in options if option.startswith("-I")]
        macros = [option for option in options if option.startswith("-D")]
        source = path if code is None else cuda_emulator.file_of(code)
        self.module = cuda_emulator.load(source, tuple(macros), tuple(folders))
        self.functions = {name: self.module.get_function(name) for name in name_expressions or ()}

    def get_function(self, name):
        return self.functions.get(name) or self.module.get_function(name)

    def get_global(self, name):
        """A __device__ or __constant__ variable as a NumPy array, to read and to write."""
        return self.module.get_global(name)
