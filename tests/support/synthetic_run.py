"""The artifacts of a small synthetic run, made without training: real digits, plausible metrics,
the formats of the stages.
"""

import dataclasses
import hashlib
import math

import numpy as np
import sklearn.datasets

import untrained
from ladder.classifiers import decisions, metrics
from ladder.network import networks, weights
from ladder.network.optimizers import Optimizer
from ladder.plan import plan
from ladder.store import artifacts
from ladder.workflow.stages import STAGES

DIGITS = [str(digit) for digit in range(10)]
CIFAR10 = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
SHAPES = {"digits": (32, 32, 3), "cifar10": (32, 32, 3), "mnist": (28, 28, 1)}
# the features of test images
VECTORS = np.random.default_rng(3).standard_normal((360, 3)).astype(np.float32)
LIBRARIES = {"numpy": "2.0.1", "scipy": "1.9.0"}
ACCURACIES = {
    "digits": {"evaluate": 0.972, "svm": 0.954, "svm_random": 0.925, "svm_pixels": 0.983},
    "mnist": {"evaluate": 0.972, "svm": 0.969, "svm_random": 0.925, "svm_pixels": 0.953},
    "cifar10": {"evaluate": 0.711, "svm": 0.672, "svm_random": 0.634, "svm_pixels": 0.541},
}


@dataclasses.dataclass
class SyntheticSettings:
    """train: number of training images, None for all; steps: None for whole epochs; validation: if
    not 0, size of a validation set instead of `test` images, which the training was measured on,
    with `patience`; features_layer: None for a network that classifies without an SVM.

    start: name of the file that the run starts from, None for random weights; fitted: whether the
    encoder is fitted to patches, so that only the decoder is trained; trained: whether there is a
    training.
    of_the_first: number of images of each part that are of the first class, whatever they show.
    drawn: weight of the divergence of latent values that an autoencoder draws, 0 for none.
    accuracy: of a network that classifies, None for that of ACCURACIES.
    evaluations: classifiers besides the SVM; seeds: further seeds with scores; listed: number of
    runs of the list with scores; options: further options of the features; parts: weights of
    features joined to the run's own; labelled: whether the last part comes from LeNet-5; mapped:
    number of images in the map; shifts: distance of the shifted copies that classifiers of features
    take, 0 for none.
    """

    dataset: str = "digits"
    network: str = "autoencoder"
    controls: tuple = ("random", "pixels")
    epochs: int = 10
    steps: int | None = None
    batch: int = 64
    test: int = 360
    of_the_first: int = 0
    train: int | None = None
    validation: int = 0
    patience: int = 0
    features_layer: str | None = None
    start: str | None = None
    fitted: bool = False
    trained: bool = True
    accuracy: float | None = None
    evaluations: tuple = ()
    seeds: tuple = ()
    listed: int = 0
    options: dict = dataclasses.field(default_factory=dict)
    parts: tuple = ()
    labelled: bool = False
    drawn: float = 0
    mapped: int = 0
    shifts: int = 0


def make(results, dataset="digits", **settings):
    """Write a run's artifacts below `results`; returns them by role, as a report's inputs.
    settings: of SyntheticSettings.
    """
    settings, random = SyntheticSettings(dataset, **settings), np.random.default_rng(7)
    params = _network_params(settings)
    network = networks.from_params(params)
    layer = settings.features_layer or (None if network.classifies else network.features)
    run = {"data": _data(results, settings)}
    run["normalized"] = _normalized(results, run["data"])
    run |= _initial(results, network, params, settings)
    if settings.fitted:
        run["patches"] = _fit(results, network, params, random)
    if network.trains and settings.trained:
        run["train"] = _train(results, run["data"], network, params, settings, random)
    if network.classifies:
        run["evaluate"] = _evaluate(results, run, params, settings, random)
    if layer:
        for kind in ("", *settings.controls):
            suffix = f"_{kind}" if kind else ""
            of = {**params, "variant": "cpu", "features_layer": layer, **settings.options}
            run[f"features{suffix}"] = read = _features(results, suffix, of, _weights(run, kind))
            if settings.parts and kind != "pixels":
                run |= _joined(results, suffix, run, of, settings)
                read = run[f"joined{suffix}"]
            run[f"svm{suffix}"] = _svm(results, suffix, run["data"], settings, random)
            for name in settings.evaluations:
                run[f"{name}{suffix}"] = _score(
                    results, name, suffix, read, run["data"], settings, random
                )
    if network.classifies and "pixels" in settings.controls:
        if "features_pixels" not in run:
            run["features_pixels"] = _features(
                results, "_pixels", {**params, "variant": "cpu"}, None
            )
        if "linear_pixels" not in run:
            run["linear_pixels"] = _score(
                results,
                "linear",
                "_pixels",
                run["features_pixels"],
                run["data"],
                settings,
                np.random.default_rng(11),
            )
    for number in range(1, settings.listed + 1):
        run[f"score_run{number}"] = _score(
            results, "svm", f"_run{number}", read, run["data"], settings, random
        )
    scores = [
        role for role in run if role.partition("_")[0] in ("evaluate", "svm", *settings.evaluations)
    ]
    for seed in settings.seeds:
        for role in scores:
            stage = role.partition("_")[0]
            run[f"{role}_seed{seed}"] = _score(
                results,
                stage,
                f"{role.removeprefix(stage)}_seed{seed}",
                read,
                run["data"],
                settings,
                random,
            )
    if settings.mapped:
        run["map"] = _map(results, run["data"], settings, random)
    return run


def _network_params(settings):
    options = {
        "autoencoder": {"autoencoder_filters": [256, 128]},
        "resnet50": {"resnet_width": 4},
        "patch_net": {"patch_net_filters": [80, 20, 30, 60]},
    }.get(settings.network, {})
    options |= {"variational": True, "variational_beta": settings.drawn} if settings.drawn else {}
    params = {"network": settings.network, **options, "image": list(SHAPES[settings.dataset])}
    return {**params, "classes": 10} if networks.from_params(params).classifies else params


def version(stage, kind=""):
    return stage[0] + hashlib.sha256(f"{stage} {kind}".encode()).hexdigest()[:11]


def _artifact(results, stage, params, parents, seconds, kind=""):
    spec = {
        "stage": stage,
        "params": params,
        "sources": {STAGES[stage].script: "0" * 16},
        "parents": parents,
    }
    making = artifacts.making(results / stage / version(stage, kind), spec)
    work = making.__enter__()
    work.seconds_before, work.threads, work.libraries = seconds, 2, LIBRARIES

    def finish():
        making.__exit__(None, None, None)
        return artifacts.Artifact(work.folder)

    return work, finish


def _data(results, settings):
    digits, test = sklearn.datasets.load_digits(), settings.validation or settings.test
    whole = np.rint(digits.images[: settings.train and test + settings.train] * 255 / 16).astype(
        np.uint8
    )
    images = np.kron(whole, np.ones((1, 4, 4), np.uint8))[..., None]
    images = images[:, 2:-2, 2:-2] if settings.dataset == "mnist" else np.repeat(images, 3, axis=3)
    if settings.dataset == "cifar10":  # random colours instead of photographs
        images = (images * np.random.default_rng(1).uniform(0.2, 1, (len(images), 1, 1, 3))).astype(
            np.uint8
        )
    scored = {"validation": settings.validation} if settings.validation else {"test_limit": "all"}
    work, finish = _artifact(
        results, "data", {"dataset": settings.dataset, "train_limit": "all", **scored}, {}, 0.3
    )
    labels = digits.target[: len(images)].astype(np.uint8)
    for start in (0, test):
        labels[start : start + settings.of_the_first] = 0
    work.write_array("train_images.npy", images[test:])
    work.write_array("test_images.npy", images[:test])
    work.write_array("train_labels.npy", labels[test:])
    work.write_array("test_labels.npy", labels[:test])
    work.metrics = {
        "classes": CIFAR10 if settings.dataset == "cifar10" else DIGITS,
        "train": len(images) - test,
        "test": test,
    }
    return finish()


def _normalized(results, data):
    work, finish = _artifact(
        results, "normalized", {"normalization": "unit"}, {"data": data.version}, 0.4
    )
    for name in ("train", "test"):
        work.write_array(f"{name}.npy", np.asarray(data.array(f"{name}_images.npy")))
    channels = data.array("test_images.npy").shape[3]
    statistics = {
        "scale": np.full(channels, 1 / 255, np.float32),
        "offset": np.zeros(channels, np.float32),
    }
    work.write_tensors("statistics.safetensors", statistics)
    return finish()


def _initial(results, network, params, settings):
    """The initial weights by role, with those of the control if the run starts from a file."""
    kinds = {"initial": {"seed": 1}}
    if settings.start:
        kinds = {"initial": {"file_sha256": "5e" * 32}}
        kinds |= {"initial_random": {"seed": 1}} if "random" in settings.controls else {}
    found = {}
    for role, source in kinds.items():
        work, finish = _artifact(
            results, "initial", {**params, **source}, {}, 0.1, role.removeprefix("initial")
        )
        untrained.save(work, network)
        work.metrics = {
            "parameters": network.parameter_count,
            "network": network.table,
            **({"file": settings.start} if role == "initial" and settings.start else {}),
        }
        found[role] = finish()
    return found


def _fit(results, network, network_params, random):
    work, finish = _artifact(
        results,
        "patches",
        {**network_params, "variant": "cpu", "patches_atoms": "kmeans", "seed": 1},
        {"normalized": version("normalized"), "initial": version("initial")},
        31.5,
    )
    values = weights.initialize(network, 1)
    with work.file(weights.file_name(network)) as path:
        weights.save(path, network, values)
    work.write_array(
        "atoms.npy",
        random.standard_normal(values[f"{network.fits[0].layer}.weight"].shape).astype(np.float32),
    )
    layers = []
    for fit in network.fits:
        _, kernel, _, channels = network.parameters[f"{fit.layer}.weight"]
        layers.append(
            {
                "layer": fit.layer,
                "patches": 120_000,
                "numbers": kernel * kernel * channels,
                "components": 256,
                "whitening": fit.whitening,
                "explained": 0.95 if fit.whitening == "pca" else 1.0,
                "seconds": 7.1,
                "atoms": "kmeans" if fit.atoms else None,
                "objective": [2.19, 2.27, 2.31] if fit.atoms else [],
            }
        )
    made = plan.inference_plan(network, "cpu", 1, plan.Dataset(1, "uint8"))
    work.metrics = {
        "layers": layers,
        "parameters": network.parameter_count,
        "network": network.table,
        "kernels": made.kernel_table,
        "layer_movement": {fit.layer: 1.1 for fit in network.fits},
        "seconds_by_operation": {"convolution forward": 12.0, "fit of conv1": 20.1},
        "device": "cpu: Example Processor, 2 threads",
    }
    return finish()


def _train(results, data, network, network_params, settings, random):
    images, batch = data.metrics["train"], settings.batch
    per_epoch = -(-images // batch)
    steps = settings.steps or settings.epochs * per_epoch
    params = {
        **network_params,
        "variant": "cpu",
        "batch_size": batch,
        "optimizer": "adam",
        "learning_rate": 0.001,
        "weight_decay": 0,
        "gradient_clip": 0,
        "schedule": "constant",
        "seed": 1,
        **({"steps": settings.steps} if settings.steps else {"epochs": settings.epochs}),
    }
    start = "patches" if settings.fitted else "initial"
    work, finish = _artifact(
        results, "train", params, {"normalized": version("normalized"), start: version(start)}, 84.2
    )
    untrained.save(work, network)
    sizes = np.array([min(batch, images - step % per_epoch * batch) for step in range(steps)])
    history = _history(network, sizes, random)
    if settings.validation:
        params["patience"] = settings.patience
        history |= _validation_history(network, settings, steps, per_epoch)
    work.write_tensors("history.safetensors", history)
    if not network.classifies:
        originals = data.array("test_images.npy")[:16].astype(float)
        softened = (originals + np.roll(originals, 1, 1) + np.roll(originals, 1, 2)) / 3
        noisy = softened + random.normal(0, 6, originals.shape)
        work.write_array("reconstructions.npy", np.clip(noisy, 0, 255).astype(np.uint8))
    if settings.drawn:
        work.write_array(
            "samples.npy", random.integers(0, 256, (32, *network.input_shape), dtype=np.uint8)
        )
    work.metrics = _training_metrics(network, images, batch, history, sizes)
    if settings.validation:
        work.metrics["validation_curve"] = _validation_metrics(history, settings)
    work.metrics["parts"][0]["frozen"] = list(network.encoder) if settings.fitted else []
    return finish()


def _training_metrics(network, images, batch, history, sizes):
    """As those of stage `train`; history: of the steps, whose batches have these sizes."""
    steps, per_epoch = len(sizes), -(-images // batch)
    epochs = [slice(start, start + per_epoch) for start in range(0, steps, per_epoch)]
    step = plan.training_plan(
        plan.TrainingSettings(
            network=network, rung="cpu", batch_size=batch, optimizer=Optimizer("adam")
        ),
        plan.Dataset(images, "uint8"),
        plan.Length(steps, per_epoch),
    )
    parameters = network.parameters
    moved = [layer.name for layer in network.layers if f"{layer.name}.weight" in parameters]
    return {
        "loss": [
            float(np.average(history["losses"][epoch], weights=sizes[epoch])) for epoch in epochs
        ],
        "accuracy": [float(history["hits"][epoch].sum() / sizes[epoch].sum()) for epoch in epochs]
        if network.classifies
        else None,
        "divergence": [
            float(np.average(history["divergences"][epoch], weights=sizes[epoch]))
            for epoch in epochs
        ]
        if network.draws
        else None,
        "layer_movement": {
            name: 0.3 / (at + 1) if at else 0.00042 for at, name in enumerate(moved)
        },
        "images_per_second": 171.4,
        "steps": steps,
        "epochs": len(epochs),
        "epochs_at_most": len(epochs),
        "parameters": network.parameter_count,
        "seconds_by_operation": {
            "convolution forward": 24.1,
            "convolution backward": 47.7,
            "ReLU": 2.6,
            "pooling": 1.9,
            "upsampling": 0.0,
            "loss": 0.3,
            "update": 0.9,
            "input": 0.2,
        },
        "seconds_by_pass": [{"load": 0.02, "forward": 2.9, "backward": 4.8, "update": 0.1}]
        * len(epochs),
        **({} if network.classifies else {"reconstruction_loss": 0.0123}),
        "memory": {
            "weights": 3_007_500,
            "gradients": 3_007_500,
            "optimizer": 6_015_000,
            "activations": 151_000_000,
            "masks": 6_300_000,
            "workspace": 42_000_000,
            "workspace of the executor": 80_000_000,
        },
        "network": [
            {
                "layer": layer.name,
                "kind": layer.kind,
                "inputs": list(layer.inputs),
                "output": list(layer.output_shape),
                "macs": layer.macs,
                "parameters": sum(math.prod(shape) for shape in layer.parameters.values()),
            }
            for layer in network.layers
        ],
        "kernels": [
            {"layer": " + ".join(layers), "kernel": operation} for layers, operation in step.kernels
        ],
        "device": "cpu: Example Processor, 2 threads",
        "parts": [{"steps": steps, "epochs": len(epochs)}],
        "misfits": [],
    }


def _history(network, sizes, random):
    """Falling losses and rising numbers of hits, with noise as of batches."""
    steps = np.arange(len(sizes))
    fallen = (
        1 / (1 + 60 * steps / max(len(sizes), 60)) ** 1.3 * random.uniform(0.7, 1.3, len(sizes))
    )
    if not network.classifies:
        return {
            "losses": 0.008 + 0.2 * fallen,
            **({"divergences": 40 - 30 * fallen} if network.draws else {}),
        }
    return {
        "losses": 0.02 + 2.3 * fallen,
        "hits": np.rint(sizes * np.clip(1 - fallen, 0, 1)).astype(float),
    }


def _validation_history(network, settings, steps, per_epoch):
    """The measurements on the validation images after each epoch: the loss is smallest after the
    third but last.
    """
    ends = np.minimum(np.arange(per_epoch, steps + per_epoch, per_epoch), steps)
    away = np.abs(np.arange(len(ends)) - (len(ends) - 3))
    hits = (
        {"validation_hits": np.rint(settings.validation * (0.95 - 0.01 * away)).astype(int)}
        if network.classifies
        else {}
    )
    return {"validation_steps": ends, "validation_losses": 0.02 + 0.01 * away, **hits}


def _validation_metrics(history, settings):
    hits = history.get("validation_hits")
    return {
        "loss": history["validation_losses"].tolist(),
        "best_epoch": int(np.argmin(history["validation_losses"])) + 1,
        "accuracy": None if hits is None else (hits / settings.validation).tolist(),
        "seconds": 4.2,
    }


def _evaluate(results, run, network_params, settings, random):
    data = run["data"]
    work, finish = _artifact(
        results,
        "evaluate",
        {**network_params, "variant": "cpu"},
        {
            "normalized": version("normalized"),
            "data": data.version,
            "weights": _weights(run, "").version,
        },
        1.3,
    )
    accuracy = settings.accuracy or ACCURACIES[settings.dataset]["evaluate"]
    predictions = _predictions(data, accuracy, random)
    sure = random.uniform(0.4, 1, len(predictions))
    probabilities = np.repeat((1 - sure[:, None]) / 9, 10, axis=1)
    probabilities[np.arange(len(predictions)), predictions] = sure
    work.write_array("predictions.npy", predictions)
    work.write_array("probabilities.npy", probabilities.astype(np.float32))
    work.metrics = {**_classified(data, predictions), "loss": 0.0971, "images_per_second": 2480.0}
    return finish()


def _weights(run, kind):
    """The artifact with the weights behind the features of this kind; None for pixels."""
    own = run["patches" if "patches" in run else "train" if "train" in run else "initial"]
    return {"": own, "random": run.get("initial_random", run["initial"]), "pixels": None}[kind]


def _features(results, suffix, params, made):
    pixels = {
        "encoder": "pixels",
        **{key: params[key] for key in ("features_flip", "features_pca") if key in params},
    }
    params = pixels if suffix == "_pixels" else {"encoder": "network", **params}
    parents = {"weights": made.version} if made else {}
    work, finish = _artifact(
        results, "features", params, {"normalized": version("normalized"), **parents}, 6.0, suffix
    )
    work.write_array("train.npy", np.zeros((4, 3), np.float32))
    work.write_array("test.npy", VECTORS)
    work.metrics = {"dimensions": 3072 if suffix == "_pixels" else 8192, "images_per_second": 731.5}
    if "features_pca" in params:
        work.metrics |= {"dimensions": 512, "dimensions_before_pca": 8192, "variance_kept": 0.917}
    return finish()


def _svm(results, suffix, data, settings, random):
    params = {"backend": "sklearn", "kernel": "rbf", "C": 10, "gamma": "scale"}
    work, finish = _artifact(
        results,
        "svm",
        {**params, **_shifts(settings)},
        {"features": version("features", suffix), "data": data.version},
        9.1,
        suffix,
    )
    predictions = _predictions(data, ACCURACIES[settings.dataset][f"svm{suffix}"], random)
    work.write_array("predictions.npy", predictions)
    _write_decisions(work, "svm", predictions)
    work.metrics = {
        **_classified(data, predictions),
        "backend": "sklearn",
        "kernel": "rbf",
        "C": 10,
        "gamma": 0.000481,
        "support_vectors": 1022,
        "fit_seconds": 7.2,
        "predict_seconds": 1.1,
    }
    return finish()


def _score(results, stage, suffix, read, data, settings, random):
    """The score of another classifier, seed or run."""
    params = {
        "linear": {"seed": 1},
        "ridge": {"seed": 1},
        "knn": {"knn_k": 10},
    }.get(stage, {})
    params |= _shifts(settings) if stage != "evaluate" else {}
    work, finish = _artifact(
        results, stage, params, {"features": read.version, "data": data.version}, 2.0, suffix
    )
    usual = ACCURACIES[settings.dataset].get(
        f"svm{suffix.partition('_seed')[0]}", ACCURACIES[settings.dataset]["svm"]
    )
    predictions = _predictions(data, usual + random.uniform(-0.03, 0.01), random)
    work.write_array("predictions.npy", predictions)
    if stage in ("svm", "ridge"):
        _write_decisions(work, stage, predictions)
    work.metrics = _classified(data, predictions)
    return finish()


def _write_decisions(work, stage, predictions):
    """Decisions that name these predictions, and margins."""
    work.write_array("margins.npy", np.linspace(-0.1, 2, len(predictions)))
    own = np.where(predictions[:, None] == np.arange(10), 1, -1).astype(np.float32)
    work.write_array(
        "decisions.npy",
        np.stack([own[:, i] - own[:, j] for i, j in decisions.pairs(10)], axis=1) / 2
        if stage == "svm"
        else own,
    )


def _shifts(settings):
    return {"classify_shifts": settings.shifts} if settings.shifts else {}


def _joined(results, suffix, run, params, settings):
    """The artifacts of joined features by role, the parts, the network of a labelled one, and the
    whole.
    """
    made, parts, others = _weights(run, suffix.removeprefix("_")), {}, {}
    for number in range(2, 2 + len(settings.parts)):
        last = number == 1 + len(settings.parts)
        if settings.labelled and last:
            others = _lenet(results, number)
            params = {
                **others[f"train_part{number}"].manifest["spec"]["params"],
                "features_layer": "fc2_relu",
            }
            made = others[f"initial_part{number}" if suffix else f"train_part{number}"]
        parts[f"features{suffix}_part{number}"] = _features(
            results, f"{suffix}_part{number}", params, made
        )
    own = run[f"features{suffix}"]
    names = {f"part{number}": one.version for number, one in enumerate([own, *parts.values()], 1)}
    work, finish = _artifact(
        results, "joined", {"weights": [1, *settings.parts]}, names, 0.4, suffix
    )
    work.write_array("test.npy", VECTORS)
    work.metrics = {"dimensions": 8192 * len(names), "parts": [8192] * len(names)}
    return {**others, **parts, f"joined{suffix}": finish()}


def _lenet(results, number):
    """The weights of a LeNet-5 before and after a training with labels, as part `number`."""
    params = {"network": "lenet_5", "image": [32, 32, 3], "classes": 10}
    _, finish = _artifact(results, "initial", {**params, "seed": 1}, {}, 0.1, f"_part{number}")
    initial = finish()
    _, finish = _artifact(
        results, "train", {**params, "seed": 1}, {"initial": initial.version}, 1.0, f"_part{number}"
    )
    return {f"initial_part{number}": initial, f"train_part{number}": finish()}


def _map(results, data, settings, random):
    work, finish = _artifact(results, "map", {"seed": 1}, {"features": version("features")}, 3.1)
    labels = np.asarray(data.array("test_labels.npy"))[: settings.mapped]
    centres = np.stack([np.cos(labels * 0.63), np.sin(labels * 0.63)], axis=1)
    places = 0.5 + 0.35 * centres + random.normal(0, 0.05, centres.shape)
    work.write_array("rows.npy", np.arange(len(labels)))
    work.write_array("places.npy", np.clip(places, 0, 1).astype(np.float32))
    return finish()


def _predictions(data, accuracy, random):
    labels = np.asarray(data.array("test_labels.npy"))
    predictions = labels.copy()
    wrong = random.choice(len(labels), round(len(labels) * (1 - accuracy)), replace=False)
    predictions[wrong] = (labels[wrong] + random.integers(1, 10, len(wrong))) % 10
    return predictions


def _classified(data, predictions):
    return metrics.classification(
        np.asarray(data.array("test_labels.npy")), predictions, data.metrics["classes"]
    )
