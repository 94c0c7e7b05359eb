"""Downloads that survive broken transfers: mirrors, resume, retries, a checksum, and one writer at a time."""

import contextlib
import dataclasses
import http.client
import os
import pathlib
import re
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request

from ladder import progress
from ladder.errors import UserError
from ladder.progress import log
from ladder.store import artifacts

ATTEMPTS = 3            # per mirror, in a row without progress
FIRST_WAIT = 1.0        # seconds before the second attempt; doubled before each further one
TIMEOUT = 30            # seconds without an answer or a byte
BLOCK = 1 << 20         # bytes
LARGEST = 2 * 10**9     # bytes; taken from a server that does not say how many it will send
PASSING = {408, 425, 429, 500, 502, 503, 504}   # HTTP statuses that another attempt may not meet


class _Broken(Exception):
    """The transfer broke; another attempt may go on from there."""


class _Unusable(Exception):
    """This mirror does not have the file."""


class _Another(_Unusable):
    """This mirror has another file in its place."""


@dataclasses.dataclass(frozen=True)
class _Wanted:
    """What a file has to be, and what a person can do where it is not."""

    fault: object          # function of a path: what is wrong with that file in a few words, "" where it is the wanted one;
                           # None where any will do
    size: int | None       # bytes, where known
    largest: int | None    # bytes that it has at most, where known
    another: str           # advice where an address gives another file; "" or ends in "; "
    kept: str              # advice where another file lies at the path, besides removing it; "" or begins with a comma
    by_hand: str           # how to do without the addresses


def fetch(urls, path, sha256, size=None, setting="sha256"):
    """Have the file with this sha256 at `path`, downloading it where it is not there yet.

    urls: http(s) and file: addresses, tried in order. A broken transfer is resumed, also by the next mirror and by the
    next run: what has come is kept in PATH.part. PATH appears only whole and verified, and two processes never write it
    at once.
    sha256: 64 hex digits.  size: bytes, where known.  setting: the configuration key of the sha256, for messages.
    Returns the absolute path. Raises UserError where no mirror gives the file, or where another file lies at `path`.
    """
    path = pathlib.Path(path).absolute()
    wanted = sha256.lower()

    def fault(file):
        found = artifacts.sha256(file)
        held = file.stat().st_size
        length = f"it is {held:,} bytes, not {size:,}, and " if size and held != size else ""
        return f"{length}its sha256 is {found}, not {wanted}" if found != wanted else ""

    return _fetch(urls, path, _Wanted(
        fault, size, None,
        another=f"if another copy of the data is the one you want, set {setting} to its sha256; ",
        kept=f", or, if this is the copy of the data you want, set {setting} to its sha256 and add its file: address to "
             "the URLs",
        by_hand=f"put the file by hand at {path}"))


def fetch_checked(urls, path, fault, largest, setting, by_hand):
    """Like `fetch`, for a file that is known by what it holds.

    fault: function of a path: what is wrong with the file there, in a few words that follow "its address: ", or "" where
    it is the file that is wanted; None where any will do.  largest: the bytes that it has at most, where known; no more are
    taken.  setting: the configuration key of the addresses.  by_hand: what to put where by hand instead, "put ... in ...".
    """
    path = pathlib.Path(path).absolute()
    return _fetch(urls, path, _Wanted(fault, None, largest, f"check {setting}; ", "", by_hand))


def _fetch(urls, path, wanted):
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with artifacts.locked(path.with_name(f".{path.name}.lock"), f"another process is downloading {path.name}"):
            if not path.exists():
                _download(urls, path, wanted)
                return path
    # Put there by an earlier run or by hand.
    if fault := wanted.fault and wanted.fault(path):
        raise UserError(f"{path} is not the file that is wanted: {fault}; remove it to download it again{wanted.kept}")
    return path


def _download(urls, path, wanted):
    part = path.with_name(f"{path.name}.part")
    faults, advice = [], ""
    for url in urls:
        try:
            _from_mirror(url, part, wanted)
            os.replace(part, path)
            return
        except _Unusable as fault:
            faults.append(f"{_line(url)}: {fault}")
            log.info("%s", faults[-1])
            if isinstance(fault, _Another):
                advice = wanted.another
    reasons = "; ".join(faults) or "no URL is given"
    raise UserError(f"cannot get {path.name} ({reasons}); {advice}{wanted.by_hand} and run again, or use the embedded "
                    "set, which needs no network: --config dataset=digits")


def _from_mirror(url, part, wanted):
    """Leave the whole, verified file at `part`."""
    started = time.monotonic()
    resumed = _transfer(url, part, wanted)
    fault = wanted.fault and wanted.fault(part)
    if fault and resumed:
        log.info("%s: the resumed file has a wrong checksum; downloading it from the start", url)
        part.unlink()
        _transfer(url, part, wanted)
        fault = wanted.fault(part)
    if fault:
        part.unlink()
        raise _Another(fault)
    log.info("%s: %s in %s, %s", url, progress.size(part.stat().st_size), progress.duration(time.monotonic() - started),
             "checksum verified" if wanted.fault else "no checksum to verify")


def _transfer(url, part, wanted):
    """Bring `part` to its full length, in several attempts if need be; True where it holds bytes of earlier ones."""
    idle = 0
    while True:
        held = _length(part)
        if wanted.size and held == wanted.size:
            return True
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
    """One request: append what comes to the `held` bytes of `part`; True where it went on from them."""
    stream, start, total = _open(url, held)
    with contextlib.closing(stream), open(part, "ab", buffering=0) as file:
        _check_length(total, wanted)
        expected = wanted.size or total
        most = expected or wanted.largest or LARGEST
        file.truncate(start)
        received = start
        with progress.bar(total=expected, initial=start, label=part.stem, unit="B", unit_scale=True) as bar:
            while block := _read(stream):
                received += len(block)
                if received > most:
                    raise _Unusable(f"sends more than {most:,} bytes")
                file.write(block)
                bar.update(len(block))
        os.fsync(file.fileno())
    if expected is not None and received < expected:
        raise _Broken(f"the transfer broke after {received:,} of {expected:,} bytes")
    return start > 0


def _check_length(total, wanted):
    """Before anything is transferred, where the server says how much it will send."""
    if total is None:
        return
    if wanted.size and total != wanted.size:
        raise _Another(f"it is {total:,} bytes, not {wanted.size:,}")
    if wanted.largest and total > wanted.largest:
        raise _Another(f"it is {total:,} bytes, and the file that is wanted has at most {wanted.largest:,}")


def _read(stream):
    try:
        return stream.read1(BLOCK)   # what has come, without waiting for a whole block
    except (OSError, http.client.HTTPException) as error:
        raise _Broken(f"the transfer broke ({_reason(error)})") from error


def _open(url, held):
    """(stream, offset of its first byte, bytes of the whole file or None), asked to begin after the `held` bytes."""
    try:
        parts = urllib.parse.urlsplit(url)
    except ValueError as error:
        raise _Unusable(_reason(error)) from error
    if parts.scheme in ("http", "https"):
        return _open_http(url, held)
    if parts.scheme == "file":
        return _open_file(parts, held)
    raise _Unusable("not an http:, https: or file: URL (a file of this machine is file:///folder/name)")


def _open_file(parts, held):
    if parts.netloc not in ("", "localhost"):
        raise _Unusable("a file of this machine is file:///folder/name, with three slashes")
    source = urllib.request.url2pathname(parts.path)
    try:
        stream = open(source, "rb")
    except OSError as error:
        raise _Unusable(_reason(error)) from error
    total = os.fstat(stream.fileno()).st_size
    start = held if held < total else 0
    stream.seek(start)
    return stream, start, total


def _open_http(url, held):
    # Any other encoding than the file's own bytes would break lengths, ranges and the checksum.
    headers = {"User-Agent": "kernel-ladder", "Accept-Encoding": "identity"}
    if held:
        headers["Range"] = f"bytes={held}-"
    try:
        response = urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 416 and held:   # more is held than the file has: what is held is of no use
            return _open_http(url, 0)
        kind = _Broken if error.code in PASSING else _Unusable
        raise kind(f"HTTP {error.code} {http.client.responses.get(error.code, '')}".strip()) from error
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
        raise _Unusable(f"answers another range than was asked for ({response.headers.get('Content-Range')!r})")
    return response, held, int(span[2]) if span[2] != "*" else None


def _reason(error):
    """What went wrong, in one line, without the wrapping that urllib puts around it."""
    reason = getattr(error, "reason", error)
    return _line(getattr(reason, "strerror", None) or str(reason) or type(reason).__name__)


def _line(text):
    return " ".join(str(text).split())
