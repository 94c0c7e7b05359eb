"""The command cuda-emulator.

    cuda-emulator check vector_add.cu --grid n/256 --block 256 --size n=sweep \\
        --args x:float32[n] y:float32[n]=empty n:int32=n

Exit status: 0 without an error (of `run` the program's own), 1 with one, 2 where nothing could be
checked, 130 if interrupted.
"""

import argparse
import dataclasses
import itertools
import json
import math
import pathlib
import sys

import cuda_emulator
from cuda_emulator import arguments, faults, report, run, survey, watched
from cuda_emulator.arguments import ArgumentError
from cuda_emulator.report import INTERRUPTED, RIGHT, UNCHECKED, WRONG

SWEPT = (1, 2)  # multiples of a block, around which sizes are swept
SAMPLE = 4  # blocks that are counted, at most


@dataclasses.dataclass(frozen=True)
class Run:
    """A launch that was checked."""

    sizes: dict
    grid: tuple
    block: tuple
    orders: int
    architecture: int
    report: watched.Report


def main(words=None):
    """Run the command; returns its exit status."""
    options = _parser().parse_args(words)
    try:
        if not cuda_emulator.compiled():
            print("compiling the emulator, once: ten seconds of a processor", file=sys.stderr)
        return options.command(options)
    except report.ERRORS as error:
        report.print_error(error)
    except KeyboardInterrupt:
        print("cuda-emulator: interrupted", file=sys.stderr)
        return INTERRUPTED
    return UNCHECKED


def _parser():
    parser = argparse.ArgumentParser(
        prog="cuda-emulator",
        description="Runs CUDA kernels on the CPU and names what is wrong with them.",
        epilog=__doc__.rpartition("\n\n")[2],
    )
    parser.add_argument("--version", action="version", version=cuda_emulator.__version__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    check = commands.add_parser(
        "check",
        help="run a kernel, every access watched, in several orders of its threads",
        description=arguments.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_launch(check)
    check.add_argument(
        "--tolerance",
        type=float,
        help="part of the largest number by which sums of atomics may differ between two orders: "
        f"{watched.TOLERANCE}, {watched.STEPS} steps of a half",
    )
    check.add_argument(
        "--allow",
        action="append",
        default=[],
        metavar="KIND[ at FILE:LINE]",
        help="leave out faults; a comment `cuda-emulator: allow KIND` in their line does too",
    )
    check.add_argument(
        "--before",
        nargs="*",
        metavar="NAME=writes",
        help="it is a dependent launch: which arrays the launch before writes, or reads (NAME=reads)",
    )
    check.add_argument("--cluster", metavar="2,1", help="blocks of a cluster")
    check.add_argument("--strict", action="store_true", help="notes are errors")
    check.add_argument("--format", choices=["text", "json", "github"], default="text")
    check.set_defaults(command=_check)
    count = commands.add_parser("count", help="count what its warps ask of the memories")
    _add_launch(count)
    count.set_defaults(command=_count)
    program = commands.add_parser("run", help="run a whole program and check its launches")
    program.add_argument("file", type=pathlib.Path)
    program.add_argument("words", nargs=argparse.REMAINDER, help="of the program itself")
    _add_compiler(program)
    program.set_defaults(command=_run)
    survey_of = commands.add_parser("survey", help="which kernels of a folder load as they are")
    survey_of.add_argument("folder", type=pathlib.Path)
    survey_of.set_defaults(command=_survey)
    return parser


def _add_launch(parser):
    parser.add_argument("file", type=pathlib.Path)
    parser.add_argument("kernel", nargs="?", help="needed where the file has several")
    parser.add_argument("--grid", default="1", help="4 or 4,2 or n/256, which is rounded up")
    parser.add_argument("--block", default="256", help="256 or 16,16: %(default)s")
    parser.add_argument(
        "--args",
        nargs="*",
        default=[],
        metavar="ARG",
        help="x:float32[n], n:int32=100 or w=weights.npy",
    )
    parser.add_argument(
        "--size",
        action="append",
        default=[],
        metavar="n=1000",
        help="a number for a name in --args and --grid; n=sweep: around the multiples of a block",
    )
    parser.add_argument("--shared", default="0", metavar="BYTES", help="of dynamic shared memory")
    parser.add_argument("--seed", type=int, default=0, help="of the numbers in arrays")
    _add_compiler(parser)


def _add_compiler(parser):
    parser.add_argument(
        "--arch",
        type=int,
        default=90,
        help="90 for sm_90, the value of __CUDA_ARCH__ / 10: %(default)s",
    )
    parser.add_argument(
        "--seconds",
        type=int,
        default=watched.SECONDS,
        help="of the processor, that a kernel may take: %(default)s",
    )
    parser.add_argument("-D", dest="macros", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("-I", dest="folders", action="append", default=[], metavar="FOLDER")


# ---- check


def _check(options):
    function, block = _function(options), _three(options.block, {})
    runs, known = [], {}
    for sizes in _sizes(options.size, math.prod(block)):
        runs.append(_checked(options, function, block, sizes))
        if options.format == "text":
            _show(runs[-1], known)
        elif options.format == "github":
            print(
                *report.annotations(runs[-1]), sep="\n", end="\n" if runs[-1].report.faults else ""
            )
    if options.format == "json":
        print(json.dumps(report.as_json(runs), indent=1))
    else:
        for fault, sizes in known.items():
            if len(sizes) > 1:
                print(f"{fault}: also with {'; '.join(map(_as_text, sizes[1:]))}")
        print(report.summary(runs))
    wrong = any(run.report.faults if options.strict else run.report.errors for run in runs)
    return WRONG if wrong else RIGHT


def _show(run, known):
    """Print the faults that are not known; known: {a short name: the sizes with which it was}."""
    new = []
    for fault in run.report.faults:
        place = f" ({pathlib.Path(fault.file).name}:{fault.line})" if fault.line else ""
        name = fault.kind + place
        new += [fault] if name not in known else []
        sizes = known.setdefault(name, [])
        sizes += [run.sizes] if run.sizes not in sizes else []
    if new and run.sizes:
        print(f"with {_as_text(run.sizes)}:")
    for line in report.text(new):
        print(line, flush=True)


def _as_text(sizes):
    return ", ".join(f"{name}={value}" for name, value in sizes.items())


def _checked(options, function, block, sizes):
    given = _given(options, function, sizes)
    grid = _three(options.grid, sizes)
    result = watched.examine(
        function,
        grid,
        block,
        [argument.value for argument in given],
        arguments.number(options.shared, sizes),
        allow=options.allow,
        tolerance=options.tolerance,
        uninitialised=[number for number, argument in enumerate(given) if argument.empty],
        before=_before(options.before),
        cluster=_three(options.cluster, sizes) if options.cluster else None,
        seconds=options.seconds,
    )
    return Run(sizes, grid, block, len(cuda_emulator.ORDERS), options.arch, result)


def _before(words):
    """{parameter: what the launch before does with it} of the words of --before, or None."""
    return None if words is None else dict(word.partition("=")[::2] for word in words)


def _module(options):
    if not options.file.is_file():
        raise ArgumentError(f"{options.file} is no file")
    macros = (f"__CUDA_ARCH__={options.arch}0", *options.macros)
    return cuda_emulator.load(
        options.file, tuple(f"-D{macro}" for macro in macros), tuple(options.folders)
    )


def _function(options):
    """The kernel that the command line names."""
    module = _module(options)
    if options.kernel:
        return module.get_function(options.kernel)
    if len(module.names) != 1:
        names = f"has {', '.join(module.names)}: name one" if module.names else "has no kernel"
        raise ArgumentError(f"{options.file} {names}")
    return module.get_function(module.names[0])


def _given(options, function, sizes):
    """The Arguments of a launch; raises ArgumentError with words to begin with if there are too
    few or too many.
    """
    given = [
        arguments.parsed(word, sizes, options.seed + number)
        for number, word in enumerate(options.args)
    ]
    parameters = function.parameters
    if len(given) != len(parameters):
        names = faults.parameter_names(function)
        words = [
            f"{name}:{parameter.dtype}" + _example(parameter)
            for name, parameter in itertools.zip_longest(names, parameters)
        ]
        raise ArgumentError(
            f"{function.name} takes {len(parameters)} arguments, not {len(given)}; such as "
            f"--size n=1000 --args {' '.join(words)}"
        )
    return given


def _example(parameter):
    return "[n]" if parameter.is_array else "=n" if parameter.dtype.kind in "iu" else "=1"


def _sizes(words, threads):
    """{name: number} of each launch."""
    names, values = [], []
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            raise ArgumentError(f"--size {word}: write n=1000 or n=sweep")
        names.append(name)
        values.append(_swept(threads) if value == "sweep" else [arguments.number(value, {})])
    return [dict(zip(names, row, strict=True)) for row in itertools.product(*values)]


def _swept(threads):
    """1, and what is beside the multiples of a block's threads, where most faults live."""
    around = (multiple * threads + step for multiple in SWEPT for step in (-1, 0, 1))
    return sorted({1, *(size for size in around if size > 0)})


def _three(text, sizes):
    """Grid or block of a text as 4,2 or n/256."""
    parts = [_quotient(part, sizes) for part in text.split(",")]
    if len(parts) > 3:
        raise ArgumentError(f"{text}: more than three dimensions")
    return (*parts, 1, 1)[:3]


def _quotient(text, sizes):
    above, slash, below = text.partition("/")
    value = arguments.number(above, sizes)
    return -(-value // max(arguments.number(below, sizes), 1)) if slash else value


# ---- count


def _count(options):
    function, block = _function(options), _three(options.block, {})
    (sizes,) = _sizes([word.replace("=sweep", "=1000") for word in options.size], 0)
    grid = _three(options.grid, sizes)
    blocks = math.prod(grid)
    sample = sorted({number * (blocks - 1) // (SAMPLE - 1) for number in range(SAMPLE)})
    args = [argument.value for argument in _given(options, function, sizes)]
    shared = arguments.number(options.shared, sizes)
    counts = function.count(grid, block, args, shared, sample, seconds=options.seconds)
    print(f"{function.name}, {len(sample)} of {blocks} blocks, {counts['warps']} warps")
    print(*report.counted(counts), sep="\n")
    return RIGHT


# ---- run


def _run(options):
    return run.run(_module(options), options.words, options.seconds)


# ---- survey


def _survey(options):
    if not options.folder.is_dir():
        raise ArgumentError(f"{options.folder} is no folder")
    rows = []
    for row in survey.survey(options.folder):
        rows.append(row)
        if row.reason:
            print(f"{row.file}: {row.kernel}: {row.reason}", flush=True)
    print(survey.table(rows))
    return RIGHT


if __name__ == "__main__":
    sys.exit(main())
