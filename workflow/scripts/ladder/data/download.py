"""Robust downloads: mirrors, resume, retries, a checksum, and one writer at a time."""

import contextlib
import dataclasses
import http.client
import os
import pathlib
import re
import ssl
import stat
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable

from ladder import progress
from ladder.errors import UserError, excerpt
from ladder.files import shown
from ladder.progress import log
from ladder.store import artifacts

ATTEMPTS = 3  # per mirror, in a row without progress
FIRST_WAIT = 1.0  # seconds before the second attempt; doubled before each further one
TIMEOUT = 30  # seconds without a response or data
BLOCK = 1 << 20  # bytes
LARGEST = 2 * 10**9  # most bytes from a server that does not send a length
PASSING = {408, 425, 429, 500, 502, 503, 504}  # HTTP statuses worth a retry


class _Broken(Exception):
    """The transfer was interrupted; another attempt may resume it."""


class _Unusable(Exception):
    """This mirror does not have the file."""


class _Another(_Unusable):
    """This mirror has a different file."""


@dataclasses.dataclass(frozen=True)
class _Wanted:
    """Requirements on a file, and advice for the user if they are not met; as of `fetch`."""

    fault: Callable[[pathlib.Path], str]
    largest: int | None
    setting: str
    by_hand: str


def fetch(urls, path, fault, largest, setting, by_hand):
    """Download the wanted file to `path` unless it is there.

    An interrupted transfer is resumed, also from the next mirror and in the next run: partial data
    stay in PATH.part. PATH appears only complete and verified, and two processes never write it at
    the same time.

    urls     http(s) and file: addresses, and paths of this machine, of the file or of a folder that
             has it by the name of `path`, with .gz or without; tried in order
    fault    function of a path: short description of the file's fault, for a message "ADDRESS:
             FAULT", "" if it is the wanted file
    largest  most bytes, if known; longer transfers are refused
    setting  the configuration keys of the addresses
    by_hand  instruction for a manual download, "put ... in ..."

    Returns the absolute path. Raises UserError if no mirror has the file, or if a different file
    exists at `path`.
    """
    path, wanted = pathlib.Path(path).absolute(), _Wanted(fault, largest, setting, by_hand)
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with artifacts.locked(
            path.with_name(f".{path.name}.lock"), f"another process is downloading {path.name}"
        ):
            if not path.exists():
                _download(urls, path, wanted)
                return path
    # The file comes from an earlier run or was put there by hand.
    if reason := fault(path):
        raise UserError(
            f"{path} is not the wanted file: {reason}; remove it to download it again, and check {setting}"
        )
    return path


def one_for_each(urls, files, setting):
    """An address for each of the files; urls: as many, or a single one, the path of the folder that
    holds them all.

    files: with the attribute `what`, their content in words; setting: the configuration key of the
    addresses. Raises UserError for another number of addresses.
    """
    if len(urls) == len(files):
        return urls
    if len(urls) == 1 and is_path(urls[0]):
        if not _local(urls[0]).exists():
            raise UserError(
                f"{setting}: there is no {shown(_local(urls[0]))}; name the folder that holds the files"
            )
        if _local(urls[0]).is_dir():
            return urls * len(files)
    raise UserError(
        f"{setting} has {len(urls)} address{'es' if len(urls) != 1 else ''}, {excerpt(', '.join(urls))}; it needs "
        f"{len(files)}: {in_order(files)}, or the path of a folder that holds them"
    )


def in_order(files):
    return f"{', '.join(file.what for file in files)}, in this order"


def is_path(address):
    """Whether an address is a path of this machine."""
    return not address.startswith(("http:", "https:", "file:")) and "://" not in address


def _local(path):
    return pathlib.Path(os.path.expanduser(path)).absolute()


def _url(address, name):
    """The address of the file `name`: of a path as file:, of a folder's path that of the file in
    it.
    """
    if not is_path(address):
        return address
    path = _local(address)
    if not path.exists():
        raise _Unusable(f"there is no {shown(path)}")
    if not path.is_dir():
        return path.as_uri()
    held = [path / file for file in (name, name.removesuffix(".gz")) if (path / file).exists()]
    if not held:
        raise _Unusable(f"the folder has no {name}")
    return held[0].as_uri()


def _download(urls, path, wanted):
    part = path.with_name(f"{path.name}.part")
    faults, advice = [], ""
    for url in urls:
        try:
            _from_mirror(_url(url, path.name), part, wanted)
            os.replace(part, path)
            return
        except _Unusable as fault:
            faults.append(f"{_line(url)}: {fault}")
            log.info("%s", faults[-1])
            if isinstance(fault, _Another):
                advice = f"check {wanted.setting}; "
    reasons = "; ".join(faults) or "no URL is given"
    raise UserError(
        f"cannot get {path.name} ({reasons}); {advice}{wanted.by_hand} and run again, or use the "
        "images that come with the program: --config dataset=mnist_small"
    )


def _from_mirror(url, part, wanted):
    """Download the complete, verified file to `part`."""
    started = time.monotonic()
    resumed = _transfer(url, part, wanted)
    fault = wanted.fault(part)
    if fault and resumed:
        log.info("%s: the resumed file has a wrong checksum; downloading it from the start", url)
        part.unlink()
        _transfer(url, part, wanted)
        fault = wanted.fault(part)
    if fault:
        part.unlink()
        raise _Another(fault)
    log.info(
        "%s: %s in %s, checksum verified",
        url,
        progress.size(part.stat().st_size),
        progress.duration(time.monotonic() - started),
    )


def _transfer(url, part, wanted):
    """Complete `part` in one or more attempts; True if it was resumed from earlier data."""
    idle = 0
    while True:
        held = _length(part)
        try:
            return _receive(url, part, held, wanted)
        except _Broken as fault:
            idle = 0 if _length(part) >= held + BLOCK else idle + 1
            if idle == ATTEMPTS:
                raise _Unusable(str(fault)) from fault
            wait = FIRST_WAIT * 2 ** max(idle - 1, 0)
            log.info("%s: %s; trying again in %s", url, fault, progress.duration(wait))
            time.sleep(wait)


def _length(part):
    return part.stat().st_size if part.exists() else 0


def _receive(url, part, held, wanted):
    """One request that appends to the `held` bytes of `part`; True if the server resumed after
    them.
    """
    stream, start, total = _open(url, held)
    with contextlib.closing(stream), open(part, "ab", buffering=0) as file:
        if total and wanted.largest and total > wanted.largest:
            raise _Another(
                f"it is {total:,} bytes, and the wanted file has at most {wanted.largest:,}"
            )
        most = total or wanted.largest or LARGEST
        file.truncate(start)
        received = start
        with progress.bar(
            total=total, initial=start, label=part.stem, unit="B", unit_scale=True
        ) as bar:
            while block := _read(stream):
                received += len(block)
                if received > most:
                    raise _Unusable(f"sends more than {most:,} bytes")
                file.write(block)
                bar.update(len(block))
        os.fsync(file.fileno())
    if total is not None and received < total:
        raise _Broken(f"the transfer broke after {received:,} of {total:,} bytes")
    return start > 0


def _read(stream):
    try:
        return stream.read1(BLOCK)  # available data, without waiting for a whole block
    except (OSError, http.client.HTTPException) as error:
        raise _Broken(f"the transfer broke ({_reason(error)})") from error


def _open(url, held):
    """(stream, offset of its first byte, bytes of the whole file or None); requests the data after
    the `held` bytes.
    """
    try:
        parts = urllib.parse.urlsplit(url)
    except ValueError as error:
        raise _Unusable(_reason(error)) from error
    if parts.scheme in ("http", "https"):
        return _open_http(url, held)
    if parts.scheme == "file":
        return _open_file(parts, held)
    raise _Unusable("not an http:, https: or file: address, nor a path")


def _open_file(parts, held):
    if parts.netloc not in ("", "localhost"):
        raise _Unusable("a file of this machine is file:///folder/name, with three slashes")
    source = urllib.request.url2pathname(parts.path)
    try:
        if stat.S_ISFIFO(os.stat(source).st_mode):  # it would be waited for
            raise _Unusable("a pipe, not a file")
        stream = open(source, "rb")
    except OSError as error:
        raise _Unusable(_reason(error)) from error
    total = os.fstat(stream.fileno()).st_size
    start = held if held < total else 0
    stream.seek(start)
    return stream, start, total


def _open_http(url, held):
    # Any content encoding would change lengths, ranges and the checksum.
    headers = {"User-Agent": "kernel-ladder", "Accept-Encoding": "identity"}
    if held:
        headers["Range"] = f"bytes={held}-"
    try:
        response = urllib.request.urlopen(
            urllib.request.Request(url, headers=headers), timeout=TIMEOUT
        )
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 416 and held:  # `part` is longer than the file, so it is useless
            return _open_http(url, 0)
        kind = _Broken if error.code in PASSING else _Unusable
        raise kind(
            f"HTTP {error.code} {http.client.responses.get(error.code, '')}".strip()
        ) from error
    except (http.client.InvalidURL, ValueError) as error:
        raise _Unusable(_reason(error)) from error
    except (OSError, http.client.HTTPException) as error:
        certificate = isinstance(getattr(error, "reason", error), ssl.SSLCertVerificationError)
        raise (_Unusable if certificate else _Broken)(_reason(error)) from error
    if response.status != 206:
        total = response.headers.get("Content-Length", "")
        return response, 0, int(total) if total.isdecimal() else None
    span = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", response.headers.get("Content-Range", ""))
    if span is None or int(span[1]) != held:
        response.close()
        raise _Unusable(
            f"answers with another range than requested ({response.headers.get('Content-Range')!r})"
        )
    return response, held, int(span[2]) if span[2] != "*" else None


def _reason(error):
    """The cause of an error in one line, without urllib's wrapper."""
    reason = getattr(error, "reason", error)
    return _line(getattr(reason, "strerror", None) or str(reason) or type(reason).__name__)


def _line(text):
    return " ".join(str(text).split())
