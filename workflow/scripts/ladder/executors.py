"""What launches a plan's steps."""

from .numpy_executor import NumpyExecutor
from .variants import VARIANTS

EXECUTORS = {"numpy": NumpyExecutor}


def create(variant, threads):
    """An executor for the variant; threads: how many CPU threads it may use."""
    return EXECUTORS[VARIANTS[variant].executor](threads)
