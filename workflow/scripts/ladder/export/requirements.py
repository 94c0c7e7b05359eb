"""Why the model of a run cannot be exported here, known before anything is computed. Standard library only."""

import importlib.util

PACKAGES = ("onnx", "onnxruntime")   # of envs/export.in
PLAIN = "float32"


def unavailable(products: list[str]) -> str | None:
    """The reason in one line with what to do, None if a model with these products (parameters.products) can be exported."""
    rounded = [name for name in products if name != PLAIN]
    if rounded:
        return (f"model: the products of this run are rounded ({', '.join(rounded)}), which ONNX cannot do, so that the model "
                "would answer otherwise than the report says; export a run with precision: float32 and test_multiplier: exact")
    missing = [name for name in PACKAGES if not importlib.util.find_spec(name)]
    if missing:
        return f"model needs {' and '.join(missing)}, not installed here: `make model`, or `envs/install export`"
    return None
