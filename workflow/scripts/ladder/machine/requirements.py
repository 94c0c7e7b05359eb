"""Why the model or the table of a run cannot be exported here, found out before anything is
computed. Standard library only.
"""

import importlib.util

PACKAGES = {"model": ("onnx", "onnxruntime"), "table": ("pyarrow",)}  # of envs/export.in, by stage
PLAIN = "float32"


def unavailable(products: list[str]) -> str | None:
    """The reason in one line with what to do, None if a model with these products
    (parameters.products) can be exported.
    """
    rounded = [name for name in products if name != PLAIN]
    if rounded:
        return (
            f"model: the products of this run are rounded ({', '.join(rounded)}), which ONNX cannot do, so that the model "
            "would answer otherwise than the report says; export a run with precision: float32 and test_multiplier: exact"
        )
    return missing("model")


def missing(stage: str) -> str | None:
    """The reason in one line with what to do, None if the packages that a stage needs are
    installed.
    """
    absent = [name for name in PACKAGES.get(stage, ()) if not importlib.util.find_spec(name)]
    if not absent:
        return None
    return f"{stage} needs {' and '.join(absent)}, not installed here: `make {stage}`, or `pip install {' '.join(absent)}`"
