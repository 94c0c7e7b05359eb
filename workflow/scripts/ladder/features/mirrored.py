"""The odd part of features: half the difference of those of an image and of its mirror image, for
kernel ridge.
"""


def odd_part(artifact, name):
    """The odd part, float32 (N, D) memory-mapped, of `train` or `test` of a features or joined
    artifact; (N, 0) without one.
    """
    if artifact.metrics.get("odd_dimensions"):
        return artifact.array(f"{name}_odd.npy")
    return artifact.array(f"{name}.npy")[:, :0]
