"""The exceptions whose message is meant for the user."""


class UserError(Exception):
    """An error with a one-line message that names the fault and its remedy; shown without a traceback."""


NOT_FINITE = "features hold NaN or Inf{}: the encoder diverged; train it with a lower learning_rate"   # {}: where, or empty


class RunFailed(UserError):
    """A run that fails deterministically because of its settings, e.g. training diverged."""
