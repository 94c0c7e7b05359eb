"""The array library that computes kernel ridge, nearest neighbours, PCA and k-means on this
machine. Standard library only.
"""

from ladder.rungs import catalog

LIBRARIES = ("cupy", "numpy")  # in the order of preference of `auto`


def resolve(name: str) -> str:
    """`name` itself, or for 'auto' the first of LIBRARIES that this machine can run."""
    return (
        next(library for library in LIBRARIES if unavailable(library) is None)
        if name == "auto"
        else name
    )


def unavailable(name: str) -> str | None:
    """The reason why this machine cannot run the library `name`, in one line with the alternative;
    None if it can.
    """
    reason = catalog.no_gpu() if name == "cupy" else None
    return reason and f"array_library cupy {reason}; set array_library to auto or numpy"
