"""The one exception that is the user's to read."""


class UserError(Exception):
    """A fault with a one-line message that says what is wrong and what to do; shown without a traceback."""
