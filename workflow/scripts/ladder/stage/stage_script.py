"""The frame of every stage script: arguments, threads, log, lock and error messages.

    from ladder.stage import stage_script

    def make(work, inputs, params): ...

    if __name__ == "__main__":
        stage_script.run(make)

A script is called by a rule as

    train_network.py --job logs/train/VERSION.json --output results/train/VERSION --threads 2
                     --log logs/train/VERSION.log [--option NAME=VALUE]

and calls make(work, inputs, params[, options]): `work` is the artifact being written
(artifacts.ArtifactWriter), `inputs` are its parents by name (artifacts.Artifact), `params` the
spec's parameters, the only settings that may change its bytes, `options` the settings that may not
(e.g. download addresses; passed if make takes four arguments).
"""

import argparse
import atexit
import contextlib
import errno
import gc
import inspect
import json
import pathlib
import sys
import traceback
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from ladder import RELEASED, caller, progress, sources
from ladder.classifiers import backends
from ladder.errors import RunFailed, UserError, one_line
from ladder.machine import gpu_errors, gpus, libraries, runtime
from ladder.progress import log
from ladder.rungs import catalog
from ladder.stage import command
from ladder.store import artifacts, manifests, programs, shorter
from ladder.verify import first_use

Make = Callable[..., None]  # make(work, inputs, params[, options]) of a stage's script


def run(make: Make, takes_failed: bool = False) -> None:
    """Parse the arguments, make the artifact, and end the process: 0, 1 with one line, or 130 after
    Ctrl-C.

    A deterministic failure (RunFailed) ends it with 1; in a list of runs, with 0 and an artifact
    that holds the reason, as do the artifacts that depend on it. takes_failed: `make` accepts
    failed inputs.
    """
    # else Python looks through all that was imported once more, 0.25 s of every stage
    atexit.register(gc.freeze)
    command.interrupt_once()
    arguments = _arguments()
    name = f"{arguments.spec['stage']} {arguments.output.name}"
    try:
        progress.start_logging(arguments.log)
        if RELEASED:
            log.info(RELEASED)
        with _gpu_explained(arguments.log):
            _make(make, arguments, takes_failed)
    except KeyboardInterrupt:
        end(f"{name}: interrupted; the same command goes on from here", 130)
    except UserError as error:
        end(f"{name}: {error}", 1)
    except MemoryError as error:
        end(f"{name}: not enough memory ({error}); a smaller train_limit needs less", 1)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EFBIG, errno.EDQUOT):
            end(
                f"{name}: no room left to write {error.filename or arguments.output}; free some disk and run again, "
                "nothing that was finished is lost",
                1,
            )
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST):
            end(
                f"{name}: {error.filename or arguments.output}: {error.strerror}; it has to be a place where this user may "
                "write",
                1,
            )
        end_by_a_bug(name, error, arguments.log)
    except Exception as error:
        end_by_a_bug(name, error, arguments.log)


def _make(make: Make, arguments: argparse.Namespace, takes_failed: bool) -> None:
    installed = _check_plan(arguments.spec)
    runtime.set_threads(arguments.threads)
    params = arguments.spec["params"]
    if catalog.computes_on_gpu(params):
        gpus.claim()
    with artifacts.making(
        arguments.output, arguments.spec, _is_asked_for_again(arguments.output)
    ) as work:
        if not work.complete:
            work.threads, work.libraries = arguments.threads, installed
            with _failure_kept(work):
                _check_first_use(work, params, dict(arguments.option))
                _work(make, work, arguments, takes_failed)
            _check_loaded(arguments.spec)
        elif work.failed and not caller.fact("keep_failed"):
            raise RunFailed(work.failed)
    if work.failed:
        log.info("%s: failed: %s", arguments.output, work.failed)
    elif not work.complete:
        log.info("%s: %s %s", arguments.output, shorter.MADE, progress.duration(work.seconds))


def _is_asked_for_again(folder: pathlib.Path) -> bool:
    """Whether an artifact was whole before the command began: Snakemake runs its stage only if that
    or a parent is forced.

    Then Snakemake has removed the manifest; its second copy tells the time. One that has failed in
    a list of runs is not made again; it repeats its reason.
    """
    started, manifest = caller.fact("started"), manifests.read_if_whole(folder)
    second = folder / manifests.COMPLETE
    if (
        not started
        or not manifest
        or "failed" in manifest
        or not second.is_file()
        or second.stat().st_mtime_ns > started
    ):
        return False
    return folder.name not in (caller.fact("damaged") or ()) and manifests.has_whole_files(
        folder, manifest
    )


def _check_plan(spec: dict[str, Any]) -> dict[str, str]:
    """Check that sources are as they were planned; returns package -> version of the libraries
    here.
    """
    changed = [path for path, digest in spec["sources"].items() if programs.digest(path) != digest]
    if changed:
        raise UserError(f"{', '.join(changed)} changed after this run was planned; run it again")
    return libraries.installed(spec["sources"], catalog.counts_gpu_libraries(spec["params"]))


def _check_first_use(
    work: artifacts.ArtifactWriter, params: dict[str, Any], options: dict[str, str]
) -> None:
    """Check what the stage will compute with on a GPU, and note how; raises UserError where that
    has to stop.
    """
    if first_use.OPTION in options:
        work.notes |= first_use.require(params.get("variant"), options[first_use.OPTION])
    work.notes |= backends.require(params.get("backend"))


def _work(
    make: Make, work: artifacts.ArtifactWriter, arguments: argparse.Namespace, takes_failed: bool
) -> None:
    inputs = {name: artifacts.Artifact(folder) for name, folder in arguments.inputs.items()}
    if not takes_failed:
        for failed in filter(None, (artifact.failed for artifact in inputs.values())):
            raise RunFailed(failed)
    takes_options = len(inspect.signature(make).parameters) > 3
    make(
        work, inputs, arguments.spec["params"], *([dict(arguments.option)] if takes_options else [])
    )


@contextlib.contextmanager
def _gpu_explained(file: pathlib.Path | None) -> Iterator[None]:
    """Turn an exception of a GPU's library into a UserError that says what to do; its traceback
    goes to the log `file`.
    """
    try:
        yield
    except Exception as error:
        explanation = gpu_errors.explained(error)
        if explanation in (None, error):
            raise
        _keep_traceback(file)
        raise explanation from error


@contextlib.contextmanager
def _failure_kept(work: artifacts.ArtifactWriter) -> Iterator[None]:
    try:
        yield
    except RunFailed as failure:
        if not caller.fact("keep_failed"):
            raise
        work.failed = str(failure)


def _check_loaded(spec: dict[str, Any]) -> None:
    """Check that the version counts every module that ran: one that is loaded by name is in no
    import statement.
    """
    if missed := sources.that_count(sources.loaded()) - spec["sources"].keys():
        raise UserError(
            f"ran {', '.join(sorted(missed))}, which its version does not count; import it where "
            "workflow/scripts/ladder/sources.py sees it"
        )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=sys.modules["__main__"].__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--job",
        type=pathlib.Path,
        required=True,
        help="JSON: the spec (stage, params, sources, parents), "
        "and the folders of its inputs by name",
    )
    parser.add_argument(
        "--output", type=pathlib.Path, required=True, help="folder of the artifact to make"
    )
    parser.add_argument("--option", type=_pair, action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--threads", type=int, default=runtime.available_cores())
    parser.add_argument("--log", type=pathlib.Path)
    arguments = parser.parse_args()
    job = json.loads(arguments.job.read_text("utf-8"))
    arguments.spec, arguments.inputs = job["spec"], job["inputs"]
    return arguments


def _pair(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return name, value


def end_by_a_bug(name: str, error: BaseException, file: pathlib.Path | None) -> NoReturn:
    """End the process with one line for an error that no code expects; its traceback goes to the
    log `file` if there is one.
    """
    _keep_traceback(file)
    where = f"; its traceback is in {file}" if file else ""
    end(f"{name}: {one_line(f'{type(error).__name__}: {error}')}{where}", 1)


def _keep_traceback(file: pathlib.Path | None) -> None:
    text = traceback.format_exc()
    if file is None:
        sys.stderr.write(text)
    else:
        # beside what is logged: the terminal shows no traceback
        with open(file, "a", encoding="utf-8") as log_file:
            log_file.write(text)


def end(message: str, status: int) -> NoReturn:
    """End the process with `message` in its log and at the end of the workflow's output."""
    log.error("%s", message)
    command.repeat_at_the_end(message)
    sys.exit(status)
