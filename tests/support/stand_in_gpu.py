"""A machine with a GPU for a process of its own: a driver, CuPy and NVRTC as an interpreter without
any of them finds them.

install() writes them, environment() has the variables of a process that is to find them, and SCRIPT
is gpu_check.py on a training that takes the emulator seconds, to be called in the folder of the
program.

The driver is a shared library that names a GPU; `import cupy` gives fake_cupy.Gpu, whose launches
run in the emulator in place of the machine code that they were loaded as. What would take the
emulator hours is smaller: see SMALL.
"""

import ctypes
import os
import pathlib
import subprocess
import sys
import textwrap

HERE = pathlib.Path(__file__).resolve().parent
NAME = "Stand-in H200"
VERSION = "14.2.0"  # of CuPy
# CUdevice_attribute, see driver.py, -> value.
ATTRIBUTES = {
    75: 9,
    76: 0,
    97: 227 << 10,
    13: 1_980_000,
    16: 132,
    36: 3_201_000,
    37: 6144,
    38: 50 << 20,
}
SMALL = {
    "timing": {
        "FLUSH_BYTES": 4096,
        "COPY_BYTES": 4096,
        "COPIES": 2,
        "ROUNDS": 2,
        "BLOCKS": 2,
        "LOOPS": 2,
    },
    "rung_work": {"ROWS": 12, "CHECKED": 2, "STREAMED": 4},
    "launch_times": {"STEPS": 1, "TURNS": 1, "MOST": 1},
}
DRIVER = """
extern "C" {
int cuInit(unsigned) { return 0; }
int cuDriverGetVersion(int* version) { *version = 13000; return 0; }
int cuDeviceGetCount(int* count) { *count = 1; return 0; }
int cuDeviceGet(int* device, int) { *device = 0; return 0; }
int cuDeviceGetName(char* name, int size, int) { __builtin_snprintf(name, size, "%s", "NAME"); return 0; }
int cuDeviceTotalMem_v2(unsigned long* bytes, int) { *bytes = 1ul << 30; return 0; }
int cuDeviceGetPCIBusId(char* text, int size, int) { __builtin_snprintf(text, size, "0000:01:00.0"); return 0; }
int cuDeviceGetAttribute(int* value, int number, int) { switch (number) { CASES } return 1; }
}
"""
LIBRARIES = """
import ctypes

class CDLL(ctypes.CDLL):
    def __init__(self, name, *arguments, **options):
        super().__init__("{}" if name == "libcuda.so.1" else name, *arguments, **options)

ctypes.CDLL = CDLL
"""
METADATA = f"Metadata-Version: 2.1\nName: cupy-cuda13x\nVersion: {VERSION}\n"


def install(folder):
    """Write the driver (by g++), which only ctypes finds, as NVRTC asks one too; CuPy, and what pip
    would have noted of it.
    """
    cases = " ".join(
        f"case {number}: *value = {value}; return 0;" for number, value in ATTRIBUTES.items()
    )
    source = DRIVER.replace("NAME", NAME).replace("CASES", cases)
    subprocess.run(
        ["g++", "-shared", "-fPIC", "-x", "c++", "-", "-o", folder / "driver.so"],
        input=source,
        text=True,
        check=True,
    )
    (folder / "sitecustomize.py").write_text(LIBRARIES.format(folder / "driver.so"))
    for name, text in {
        "cupy": "import stand_in_gpu\nstand_in_gpu.take_over(__spec__)\n",
        "cupyx": "import cupy\nempty_pinned = cupy.empty_pinned\n",
    }.items():
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text(text)
    about = folder / f"cupy_cuda13x-{VERSION}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(METADATA)


def environment(folder, nvrtc=None):
    """Variables of a process that finds what is in the folder, and the NVRTC in this shared
    library.
    """
    path = os.pathsep.join(map(str, (folder, HERE, HERE.parents[1] / "emulator/src")))
    return {
        "PYTHONPATH": path,
        "LD_LIBRARY_PATH": str(nvrtc.parent if nvrtc else ""),
        "STAND_IN_NVRTC": str(nvrtc or ""),
        "STAND_IN_CACHE": os.environ.get("XDG_CACHE_HOME") or str(pathlib.Path.home() / ".cache"),
    }


def take_over(spec):
    """Be the module cupy of this process."""
    sys.path.insert(0, str(pathlib.Path(sys.modules["ladder"].__file__).resolve().parents[1]))
    import cuda_emulator
    import emulated
    import fake_cupy
    from ladder.executors.cuda import executor as cuda_executor

    own = os.environ.get("XDG_CACHE_HOME")  # the emulator's cache stays that of the user
    os.environ["XDG_CACHE_HOME"] = os.environ["STAND_IN_CACHE"]
    cuda_emulator._cache()
    os.environ["XDG_CACHE_HOME"] = own
    for name, values in SMALL.items():
        if name in sys.modules:
            vars(sys.modules[name]).update(values)
    gpu, compiled, cubin = fake_cupy.Gpu(), {}, cuda_executor.cubin

    def noted(source, architecture, defines):
        path = cubin(source, architecture, defines)
        assert path.read_bytes().startswith(b"\x7fELF")
        compiled[str(path)] = source, tuple(f"-D{define}" for define in defines)
        return path

    class Module(fake_cupy._Module):
        def __init__(self, path):
            self.gpu, self.emulated = gpu, emulated.load(*compiled[path])

    cuda_executor.cubin = noted
    gpu.__version__, gpu.__spec__, gpu.RawModule = VERSION, spec, lambda path: Module(path)
    gpu.cuda.runtime.runtimeGetVersion = lambda: 13000
    sys.modules |= {"cupy": gpu, "cupy.cuda": gpu.cuda}
    if os.environ["STAND_IN_NVRTC"]:
        gpu.cuda.nvrtc = sys.modules["cupy.cuda.nvrtc"] = Nvrtc(
            ctypes.CDLL(os.environ["STAND_IN_NVRTC"])
        )


class Nvrtc:
    """cupy.cuda.nvrtc, as far as ladder/executors/cuda/nvrtc.py uses it."""

    class NVRTCError(RuntimeError):
        pass

    def __init__(self, library):
        self.library, self.programs = library, []

    def getVersion(self):
        major, minor = ctypes.c_int(), ctypes.c_int()
        self.call("nvrtcVersion", ctypes.byref(major), ctypes.byref(minor))
        return major.value, minor.value

    def getSupportedArchs(self):
        count = ctypes.c_int()
        self.call("nvrtcGetNumSupportedArchs", ctypes.byref(count))
        numbers = (ctypes.c_int * count.value)()
        self.call("nvrtcGetSupportedArchs", numbers)
        return list(numbers)

    def createProgram(self, text, name, headers, names):
        program = ctypes.c_void_p()
        self.call(
            "nvrtcCreateProgram", ctypes.byref(program), text.encode(), name.encode(), 0, None, None
        )
        return program

    def compileProgram(self, program, options):
        self.call(
            "nvrtcCompileProgram",
            program,
            len(options),
            (ctypes.c_char_p * len(options))(*map(str.encode, options)),
        )

    def destroyProgram(self, program):
        self.call("nvrtcDestroyProgram", ctypes.byref(program))

    def getProgramLog(self, program):
        return self.output("ProgramLog", program).decode()

    def getPTX(self, program):
        return self.output("PTX", program)

    def getCUBIN(self, program):
        return self.output("CUBIN", program)

    def output(self, what, program):
        """Without its last byte, as CuPy has it."""
        size = ctypes.c_size_t()
        self.call(f"nvrtcGet{what}Size", program, ctypes.byref(size))
        data = ctypes.create_string_buffer(size.value)
        self.call(f"nvrtcGet{what}", program, data)
        return data.raw[:-1]

    def call(self, name, *arguments):
        if status := getattr(self.library, name)(*arguments):
            raise self.NVRTCError(f"{name}: {status}")


SCRIPT = textwrap.dedent("""
    import sys
    sys.path.insert(0, "benchmarks")
    import cases
    small = cases.Case("autoencoder", (8, 8, 3), 4, 44, (("filters", (8, 4)),))
    cases.HEADLINES, cases.LARGE, cases.OTHERS, cases.MULTIPLIED = (small,), small, (), small
    import chain, race, sections
    chain.prepare, chain.sections = (lambda out, version: []), (lambda record, out, rungs: ())
    launches, sections.LAUNCHES_SECONDS = sections.launches, 240
    sections.launches = lambda rungs: launches(rungs[:1])
    race.TURNS, race.TURN_SECONDS, sections.MULTIPLIERS = 2, 0.02, ()
    import gpu_check
    if __name__ == "__main__":   # not in the processes that compile
        gpu_check.main()
""")
