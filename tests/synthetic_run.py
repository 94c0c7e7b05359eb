"""The artifacts of a small run, made up without training: real digits, plausible metrics, the formats of the stages."""

import hashlib
import struct

import numpy as np
import sklearn.datasets

from ladder import artifacts

CONVOLUTIONS = {"enc1": (256, 3), "enc2": (128, 256), "dec1": (128, 128), "dec2": (256, 128), "dec3": (3, 256)}   # O, I
DIGITS = [str(digit) for digit in range(10)]
CIFAR10 = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
LAYERS = [("enc1", "conv2d", [32, 32, 256]), ("enc1_relu", "relu", [32, 32, 256]),
          ("enc1_pool", "maxpool2d", [16, 16, 256]),
          ("enc2", "conv2d", [16, 16, 128]), ("enc2_relu", "relu", [16, 16, 128]), ("latent", "maxpool2d", [8, 8, 128]),
          ("dec1", "conv2d", [8, 8, 128]), ("dec1_relu", "relu", [8, 8, 128]), ("dec1_up", "upsample2d", [16, 16, 128]),
          ("dec2", "conv2d", [16, 16, 256]), ("dec2_relu", "relu", [16, 16, 256]),
          ("dec2_up", "upsample2d", [32, 32, 256]), ("dec3", "conv2d", [32, 32, 3])]
KERNELS = {"enc1 + enc1_relu + enc1_pool": "conv2d_forward", "enc2 + enc2_relu + latent": "conv2d_forward",
           "dec1 + dec1_relu": "conv2d_forward", "dec1_up + dec2 + dec2_relu": "upsample_conv2d_forward",
           "dec2_up + dec3": "upsample_conv2d_forward"}


def make(results, dataset="digits", controls=("random", "pixels"), epochs=10, test=360):
    """Write a run's artifacts below `results`; returns them by role, as a report's inputs."""
    random = np.random.default_rng(7)
    run = {"data": _data(results, dataset, test)}
    run["normalized"] = _normalized(results, run["data"])
    run["train"] = _train(results, run["data"], epochs, random)
    encoders = {"": 0.954, "_random": 0.925, "_pixels": 0.983}
    if dataset == "cifar10":
        encoders = {"": 0.672, "_random": 0.634, "_pixels": 0.541}
    for suffix, accuracy in encoders.items():
        if not suffix or suffix[1:] in controls:
            run[f"features{suffix}"] = _features(results, suffix)
            run[f"svm{suffix}"] = _svm(results, suffix, run["data"], accuracy, random)
    return run


def version(stage, kind=""):
    return stage[0] + hashlib.sha256(f"{stage} {kind}".encode()).hexdigest()[:11]


def _artifact(results, stage, params, parents, seconds, kind=""):
    spec = {"stage": stage, "params": params, "sources": {f"workflow/scripts/{stage}.py": "0" * 16}, "parents": parents}
    making = artifacts.making(results / stage / version(stage, kind), spec)
    work = making.__enter__()
    work.seconds_before, work.threads = seconds, 2

    def finish():
        making.__exit__(None, None, None)
        return artifacts.Artifact(work.folder)

    return work, finish


def _data(results, dataset, test):
    digits = sklearn.datasets.load_digits()
    images = np.kron(np.rint(digits.images * 255 / 16).astype(np.uint8), np.ones((1, 4, 4), np.uint8))
    images = np.repeat(images[..., None], 3, axis=3)
    if dataset == "cifar10":   # colours, to stand for photographs
        images = (images * np.random.default_rng(1).uniform(0.2, 1, (len(images), 1, 1, 3))).astype(np.uint8)
    work, finish = _artifact(results, "data", {"dataset": dataset, "train_limit": "all", "test_limit": "all"}, {}, 0.3)
    labels = digits.target.astype(np.uint8)
    work.write_array("train_images.npy", images[test:])
    work.write_array("test_images.npy", images[:test])
    work.write_array("train_labels.npy", labels[test:])
    work.write_array("test_labels.npy", labels[:test])
    work.metrics = {"classes": CIFAR10 if dataset == "cifar10" else DIGITS, "train": len(images) - test, "test": test}
    return finish()


def _normalized(results, data):
    work, finish = _artifact(results, "normalized", {"normalization": "unit"}, {"data": data.version}, 0.4)
    for name in ("train", "test"):
        work.write_array(f"{name}.npy", np.asarray(data.array(f"{name}_images.npy")))
    statistics = {"scale": np.full(3, 1 / 255, np.float32), "offset": np.zeros(3, np.float32)}
    work.write_tensors("statistics.safetensors", statistics)
    return finish()


def _train(results, data, epochs, random):
    params = {"network": "autoencoder", "variant": "cpu", "batch_size": 64, "epochs": epochs, "optimizer": "adam",
              "learning_rate": 0.001, "weight_decay": 0, "gradient_clip": 0, "gradient_scale": "mean",
              "schedule": "constant", "seed": 1}
    work, finish = _artifact(results, "train", params,
                             {"normalized": version("normalized"), "initial": version("initial")}, 84.2)
    work.write_bytes("weights.bin", _weights(random))
    originals = data.array("test_images.npy")[:16].astype(float)
    softened = (originals + np.roll(originals, 1, 1) + np.roll(originals, 1, 2)) / 3
    noisy = softened + random.normal(0, 6, originals.shape)
    work.write_array("reconstructions.npy", np.clip(noisy, 0, 255).astype(np.uint8))
    parameters = {name: out * into * 9 + out for name, (out, into) in CONVOLUTIONS.items()}
    work.metrics = {
        "loss": [0.008 + 0.05 / (epoch + 1) ** 1.3 for epoch in range(epochs)],
        "layer_movement": {"enc1": 0.213, "enc2": 0.148, "dec1": 0.191, "dec2": 0.103, "dec3": 0.00042},
        "images_per_second": 171.4, "steps": 23 * epochs, "parameters": sum(parameters.values()),
        "seconds_by_operation": {"convolution forward": 24.1, "convolution backward": 47.7, "ReLU": 2.6, "pooling": 1.9,
                                 "upsampling": 0.0, "loss": 0.3, "update": 0.9, "input": 0.2},
        "memory": {"weights": 3_007_500, "gradients": 3_007_500, "optimizer": 6_015_000, "activations": 151_000_000,
                   "pool masks": 6_300_000, "workspace": 42_000_000},
        "network": [{"layer": name, "kind": kind, "output": shape, "parameters": parameters.get(name, 0),
                     "macs": shape[0] * shape[1] * (parameters[name] - shape[2]) if name in parameters else 0}
                    for name, kind, shape in LAYERS],
        "kernels": [{"layer": layers, "kernel": kernel} for layers, kernel in KERNELS.items()],
        "device": "cpu: Example Processor, 2 threads",
    }
    return finish()


def _weights(random):
    parts = [struct.pack("<2i", 0xAE2024, 1)]
    for out, into in CONVOLUTIONS.values():
        parts.append(random.normal(0, (2 / (9 * into)) ** 0.5, out * into * 9).astype("<f4").tobytes())
        parts.append(np.zeros(out, "<f4").tobytes())
    return b"".join(parts)


def _features(results, suffix):
    params = {"encoder": "network", "network": "autoencoder", "variant": "cpu"}
    params = {"encoder": "pixels"} if suffix == "_pixels" else params
    weights = {"": {"weights": version("train")}, "_random": {"weights": version("initial")}, "_pixels": {}}[suffix]
    work, finish = _artifact(results, "features", params, {"normalized": version("normalized"), **weights}, 6.0, suffix)
    work.write_array("train.npy", np.zeros((4, 3), np.float32))
    work.metrics = {"dimensions": 3072 if suffix == "_pixels" else 8192, "images_per_second": 731.5}
    return finish()


def _svm(results, suffix, data, accuracy, random):
    classes, labels = data.metrics["classes"], np.asarray(data.array("test_labels.npy"))
    predictions = labels.copy()
    wrong = random.choice(len(labels), round(len(labels) * (1 - accuracy)), replace=False)
    predictions[wrong] = (labels[wrong] + random.integers(1, 10, len(wrong))) % 10
    confusion = np.zeros((10, 10), int)
    np.add.at(confusion, (labels, predictions), 1)
    work, finish = _artifact(results, "svm", {"backend": "sklearn", "kernel": "rbf", "C": 10, "gamma": "scale"},
                             {"features": version("features", suffix), "data": data.version}, 9.1, suffix)
    work.write_array("predictions.npy", predictions)
    shares = confusion.diagonal() / confusion.sum(axis=1)
    work.metrics = {"accuracy": float((predictions == labels).mean()),
                    "per_class": dict(zip(classes, shares.tolist(), strict=True)),
                    "confusion": confusion.tolist(), "backend": "sklearn", "kernel": "rbf", "C": 10, "gamma": 0.000481,
                    "support_vectors": 1022, "fit_seconds": 7.2, "predict_seconds": 1.1}
    return finish()
