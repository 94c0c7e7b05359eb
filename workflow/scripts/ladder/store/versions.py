"""The version of an artifact: a hash of its specification. Standard library only."""

import hashlib
import json
from typing import Any


def version(spec: dict[str, Any]) -> str:
    """The stage's first letter (so that no version reads as a number) and 11 hex digits of the
    sha256 of the canonical spec, in which a source has its name in place of its path.
    """
    sources = sorted(
        ([path.rpartition("/")[2], digest] for path, digest in spec["sources"].items()), key=str
    )
    text = canonical({**spec, "sources": sources})
    return str(spec["stage"])[0] + hashlib.sha256(text.encode()).hexdigest()[:11]


def canonical(value: Any) -> str:
    """JSON text, identical for equal values: keys sorted, 1.0 written as 1."""
    return json.dumps(
        _plain(value), sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=False
    )


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
