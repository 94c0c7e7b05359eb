"""The instructions of a compiled kernel, from NVIDIA's disassembler (envs/kernels.txt)."""

import dataclasses
import functools
import importlib.metadata
import pathlib
import re
import subprocess
import tempfile

from ladder.errors import UserError

PACKAGE = "nvidia-cuda-nvdisasm"
# which change no instruction
WITH_LINES, LINES = ("--generate-line-info",), "--print-line-info-inline"
MATRICES = ("HMMA", "HGMMA", "IMMA")  # products of small matrices by tensor cores
PRODUCTS = ("FFMA", *MATRICES)
STORES = ("STG", "STS", "ST")
COPIES = ("LDGSTS",)  # from global to shared memory; the warp goes on
GLOBAL_LOADS = ("LDG", *COPIES)
# Words of 4 bytes that a lane gets.
SHARED_LOADS = {
    "LDS": 1,
    "LDS.U16": 1,
    "LDS.64": 2,
    "LDS.128": 4,
    "LDS.U": 1,
    "LDS.U.64": 2,
    "LDS.U.128": 4,
    "LDSM.16.M88": 1,
    "LDSM.16.M88.2": 2,
    "LDSM.16.M88.4": 4,
    "LDSM.16.MT88": 1,
    "LDSM.16.MT88.2": 2,
    "LDSM.16.MT88.4": 4,
}


@dataclasses.dataclass(frozen=True)
class Body:
    """The instructions of a kernel that count: its busiest loop, or without a loop all. products:
    those of PRODUCTS.

    shared_words: words of 4 bytes that a lane gets from its shared loads, of which the compiler
    makes one where the source has several neighbours. matrices: what those of MATRICES make, for a
    warp, in results of 16x8: a HMMA is one, a HGMMA of 64x128 is 16; copies: of the global loads
    those of COPIES. waits: latencies of copies that it waits for, of which a wait that leaves n
    groups of them under way is one (n + 1)th.
    """

    is_loop: bool
    instructions: int
    products: int
    global_loads: int
    shared_words: int
    matrices: int = 0
    copies: int = 0
    waits: float = 0


def bodies(cubin):
    """{kernel: Body} of machine code; raises UserError without the disassembler."""
    return {name: body(lines) for name, lines in sections(text(cubin)).items()}


def text(cubin, *options):
    """The instructions of machine code; raises UserError without the disassembler.

    options: LINES adds the line of the source, and those that it is inlined in, where it was
    compiled WITH_LINES.
    """
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        run = subprocess.run(
            [_program(), "-c", *options, file.name], capture_output=True, text=True, check=False
        )
    if run.returncode:
        raise UserError(f"nvdisasm failed: {run.stderr}")
    return run.stdout


def installed():
    try:
        return bool(_program())
    except UserError:
        return False


@functools.cache
def _program():
    try:
        files = importlib.metadata.files(PACKAGE) or ()
    except importlib.metadata.PackageNotFoundError:
        raise UserError(
            "NVIDIA's disassembler is not installed here; install it with: "
            "pip install -r envs/kernels.txt"
        ) from None
    return str(next(pathlib.Path(file.locate()) for file in files if file.name == "nvdisasm"))


def sections(text):
    """{kernel: the lines of its code}."""
    parts = re.split(r"^\s*\.section\s+\.text\.(\w+),.*$", text, flags=re.M)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def body(text):
    """The Body of one kernel's code: of the loops with the most products the shortest; where none
    has any, the longest.
    """
    lines = [line.strip() for line in text.splitlines()]
    counts = [_counted(loop, True) for loop in _loops(lines)]
    return max(
        counts,
        key=lambda loop: (
            loop.products,
            loop.instructions if not loop.products else -loop.instructions,
        ),
        default=_counted(lines, False),
    )


def loads_together(cubin):
    """{kernel: [for each global load in a loop, how many are under way at once, itself among them]}
    of machine code.

    A load is under way until an instruction reads what it brings.
    """
    return {name: kernel_loads(lines) for name, lines in sections(text(cubin)).items()}


def kernel_loads(text):
    """The same of one kernel's code."""
    return [
        number
        for loop in _loops([line.strip() for line in text.splitlines()])
        for number in _loads_in_flight(loop)
    ]


def _loops(lines):
    """The lines of each loop of a kernel's code, of which some may be in others."""
    labels = {
        line[:-1]: number for number, line in enumerate(lines) if re.fullmatch(r"\.L\w+:", line)
    }
    loops = [
        (labels[target], number)
        for number, line in enumerate(lines)
        for target in re.findall(r"BRA.*`\((\.L\w+)\)", line)
        if target in labels and labels[target] < number
    ]
    return [lines[first : last + 1] for first, last in loops if last - first > 1]


def _loads_in_flight(loop):
    """Two rounds of a loop: what a round loads the next one may read."""
    most, under_way = {}, {}  # place of a load -> how many; -> the registers that it fills
    for number, line in enumerate(loop * 2):
        instruction = re.match(r"/\*\w+\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)\s*([^;]*)", line)
        if not instruction:
            continue
        operation, operands = instruction[1].split("."), instruction[2].split(",")
        written = re.findall(r"\bR(\d+)", operands[0]) if operation[0] == "LDG" else ()
        read = {
            int(register)
            for register in re.findall(
                r"\bR(\d+)", ",".join(operands[operation[0] not in STORES :])
            )
        }
        under_way = {
            place: registers for place, registers in under_way.items() if not read & set(registers)
        }
        if written:
            first, words = (
                int(written[0]),
                {"64": 2, "128": 4}.get(
                    next((part for part in operation if part.isdigit()), ""), 1
                ),
            )
            under_way[number % len(loop)] = range(first, first + words)
            most |= {place: max(most.get(place, 0), len(under_way)) for place in under_way}
    return list(most.values())


def _counted(lines, is_loop):
    operations = [
        operation
        for line in lines
        for operation in re.findall(r"^/\*\w+\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)", line)
        # never run: the compiler puts some where it starts copies
        if "@!PT" not in line
    ]
    names = [operation.partition(".")[0] for operation in operations]
    shared = [
        SHARED_LOADS[operation]
        for operation, name in zip(operations, names, strict=True)
        if name in ("LDS", "LDSM")
    ]
    return Body(
        is_loop,
        len([name for name in names if name != "NOP"]),
        sum(name in PRODUCTS for name in names),
        sum(name in GLOBAL_LOADS for name in names),
        sum(shared),
        sum(map(_matrices, operations)),
        sum(name in COPIES for name in names),
        sum(
            1 / (1 + int(left, 16))
            for line in lines
            for left in re.findall(r"\bDEPBAR\.LE SB0, (0x\w+)", line)
        ),
    )


def _matrices(operation):
    if operation.partition(".")[0] not in MATRICES:
        return 0
    # of a warpgroup: its four warps have 16 rows each
    shape = re.match(r"HGMMA\.64x(\d+)x", operation)
    return int(shape[1]) // 8 if shape else 1
