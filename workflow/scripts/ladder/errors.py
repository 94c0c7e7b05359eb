"""The exceptions whose message is meant for the user, and how their messages show values."""

import json

MOST = 1000  # characters of a message
MOST_SHOWN = 80  # characters of a value in a message


class UserError(Exception):
    """An error with a one-line message that names the fault and its remedy; shown without a
    traceback.
    """

    def __init__(self, message: str) -> None:
        super().__init__(one_line(message))


class RunFailed(UserError):
    """A run that fails deterministically because of its settings, e.g. training diverged."""


# {}: where, or empty
NOT_FINITE = "features hold NaN or Inf{}: the encoder diverged; train it with a lower learning_rate"


def one_line(text: object, most: int = MOST) -> str:
    """`text` with escapes for line breaks and all else that is not printed, and its middle cut out
    beyond `most` characters.
    """
    text = "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in str(text)
    )
    return text if len(text) <= most else f"{text[: most // 2 - 3]} ... {text[2 - most // 2 :]}"


def excerpt(value: object) -> str:
    """A value as messages show it: text in quotes, and of anything long its beginning and its
    length.
    """
    try:
        if isinstance(value, (list, dict)):
            text = json.dumps(value, default=str, ensure_ascii=False, skipkeys=True)
        else:
            text = f"'{value}'" if isinstance(value, str) else str(value)
    except (ValueError, RecursionError):  # a number of more than 4,300 digits, or nested too deep
        text = "too large to be shown"
    shown = one_line(text[:MOST_SHOWN])
    return (
        shown if len(text) <= MOST_SHOWN else f"{shown[:MOST_SHOWN]}... ({len(text):,} characters)"
    )
