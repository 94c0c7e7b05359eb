"""The parameters of each stage of a run: the settings that may change the bytes of its artifact, as
values that are resolved.

A setting is among them where it is used and nowhere else, so that the versions of other runs stay.
Each function takes a run and the role of the artifact.
"""

import dataclasses
import math
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

from ladder.data import facts as dataset_facts
from ladder.data import listing
from ladder.data.facts import FOLDER
from ladder.network import networks
from ladder.store.roles import PIXELS, RANDOM, START, Role
from ladder.training.parameters import TrainingParameters, names
from ladder.workflow import recipe
from ladder.workflow.runs import Entry, Run

Params = dict[str, Any]
# Feature options that enter the version only when enabled; the values mean "off".
OFF: Params = {
    "features_two_polarity": "none",
    "features_polarity_scale": "none",
    "features_max_pool": 1,
    "features_pca": "none",
}
OFF_FOR_PIXELS: Params = {
    "features_standardize": False,
    "features_flip": False,
    "features_pca": "none",
}


# The encoder.


def initial(run: Run, role: Role) -> Params:
    """The control is a random draw, whatever the run starts from. A head over an encoder from a
    file is drawn by the seed.
    """
    reads = run.file_sha256 and role.kind != RANDOM
    draws = not reads or run.settings.network in networks.HEADED
    return {
        **run.network_params,
        **run.pick(*(["file_sha256"] if reads else []), *(["seed"] if draws else [])),
    }


def patches(run: Run, role: Role) -> Params:
    keys = [
        "variant",
        "array_library",
        "patches_atoms",
        "patches_samples",
        "patches_whitening",
        "seed",
    ]
    keys += ["patches_iterations"] if run.settings.patches_atoms == "kmeans" else []
    return {**run.network_params, **run.pick(*keys)}


def train(run: Run, role: Role) -> Params:
    own = run.settings
    by_gradient, counted = own.training != "patches", own.steps != "none"
    has = {
        "decoder_epochs": own.training != "gradient",
        "epochs": by_gradient and not counted,
        "steps": by_gradient and counted,
        "gradient_scale": not run.network.classifies,
        "freeze_encoder": own.network in networks.HEADED,
        "momentum": own.optimizer == "momentum",
        "schedule_step_epochs": own.schedule == "step",
        "schedule_step_factor": own.schedule == "step",
        "patience": own.validation,
        "loss_scale": False,  # _multiplier
    }
    keys = [key for key in names(TrainingParameters) if has.get(key, True)]
    return {**run.network_params, **run.pick(*keys), **_multiplier(run)}


def _multiplier(run: Run) -> Params:
    """What the training multiplies; empty if that is exact. Halves need loss scaling."""
    name, used = run.multiplier_identity, run.settings.multiplier_in
    if name == "exact" or not used:
        params, scaled = _precision(run), run.settings.precision == "float16"
    else:
        params = {"multiplier": name, "multiplier_in": used}
        scaled = name == "fp16" and used != ["forward"]
    return {**params, **(run.pick("loss_scale") if scaled else {})}


def _precision(run: Run) -> Params:
    return {} if run.settings.precision == "float32" else run.pick("precision")


def evaluate(run: Run, role: Role) -> Params:
    name = run.test_multiplier_identity
    return {
        **run.network_params,
        **run.pick("variant"),
        **(_precision(run) if name == "exact" else {"multiplier": name}),
    }


# Features, and what reads them.


def features(run: Run, role: Role) -> Params:
    """Of an encoder before a head was trained over it: its own output, whatever layer the run
    names.
    """
    if role.kind == PIXELS:
        return _pixel_features(run)
    on = {key for key, value in run.pick(*OFF).items() if value != OFF[key]}
    if "features_two_polarity" not in on:
        on -= {"features_polarity_scale"}
    return {
        "encoder": "network",
        **evaluate(run, role),
        "variant": run.settings.features_variant,
        **run.pick("features_layer", "features_standardize", "features_pool", "features_flip"),
        **({"features_layer": run.network.features} if role.kind == START else {}),
        **_with_what_is_fitted(run, on),
        **(_rows(run) if role.kind == RANDOM else {}),
    }


def normalized(run: Run, role: Role) -> Params:
    """Of raw pixels, their values as they are."""
    return {"normalization": "unit"} if role.kind == PIXELS else run.pick("normalization")


def _pixel_features(run: Run) -> Params:
    """Raw pixels take only the options that need no feature maps, and no PCA with as many
    components as pixels; those of pictures of one's own none.
    """
    if run.settings.dataset == FOLDER:
        return {"encoder": "pixels", **_rows(run)}
    on = {key for key, value in run.pick(*OFF_FOR_PIXELS).items() if value != OFF_FOR_PIXELS[key]}
    if (components := run.settings.features_pca) != "none" and components >= math.prod(
        run.facts.shape
    ):
        on -= {"features_pca"}
    return {"encoder": "pixels", **_with_what_is_fitted(run, on), **_rows(run)}


def _rows(run: Run) -> Params:
    """Of a control: how many training images classifiers see."""
    classified = _classified(run)
    return {"rows": classified["classify_rows"]} if classified else {}


def _classified(run: Run) -> Params:
    return {} if run.settings.classify_rows == "all" else run.pick("classify_rows")


def _with_what_is_fitted(run: Run, on: set[str]) -> Params:
    sampled = (
        ["features_fit_rows", "seed"] if on & {"features_polarity_scale", "features_pca"} else []
    )
    computed = ["array_library"] if "features_pca" in on else []
    return run.pick(*sorted(on), *sampled, *computed)


def shifted(run: Run, role: Role) -> Params:
    return {**_computing(run, role), **run.pick("classify_shifts")}


def changed(run: Run, role: Role) -> Params:
    return {**_computing(run, role), **run.pick("seed")}


def _computing(run: Run, role: Role) -> Params:
    """What computes the features of the part that copies of images are made for."""
    computed = features(run if role.part == 1 else run.parts[role.part - 2].run, role)
    return {key: computed[key] for key in ("variant", "array_library") if key in computed}


def svm(run: Run, role: Role) -> Params:
    kernel = {
        "backend": run.settings.svm_backend,
        "kernel": run.settings.svm_kernel,
        "C": run.settings.svm_C,
    }
    width = {} if run.settings.svm_kernel == "linear" else {"gamma": run.settings.svm_gamma}
    return {**kernel, **width, **_shifts(run, role), **_classified(run)}


def classifier(*keys: str) -> Callable[[Run, Role], Params]:
    """The settings of the classifier, the number of images that it is fitted to, and how far the
    images are shifted that it decides by.
    """
    return lambda run, role: {**run.pick(*keys), **_shifts(run, role), **_classified(run)}


def labels(run: Run, role: Role) -> Params:
    return {**run.pick("label_counts", "seed"), **_classified(run)}


def neighbours(run: Run, role: Role) -> Params:
    return {**run.pick("seed"), **_classified(run)}


def _shifts(run: Run, role: Role) -> Params:
    return run.pick("classify_shifts") if decides_by_shifts(run, role) else {}


def decides_by_shifts(run: Run, role: Role) -> bool:
    """Whether a classifier of features decides by shifted images too. Networks that classify, and
    their controls, do not.
    """
    return run.settings.classify_shifts != "none" and role.stage in (
        "svm",
        *run.settings.evaluations,
    )


def products(run: Run) -> list[str]:
    """What the products of a run's predictions are rounded to: `float32` alone where none are."""
    networks_tested = (run, *(part.run for part in run.parts))
    return sorted(
        {
            tested.settings.precision
            if tested.test_multiplier_identity == "exact"
            else tested.test_multiplier_identity
            for tested in networks_tested
        }
    )


def feature_map(run: Run, role: Role) -> Params:
    return run.pick("seed") | ({} if run.facts.classes else {"pictures": "all"})


def report(run: Run, role: Role) -> Params:
    may_be_empty = {
        **run.pick("name", "tags", "targets"),
        "runs": listed(run.listed),
        "control_settings": run.others[RANDOM].pick(*run.controls[RANDOM])
        if RANDOM in run.others and run.facts.classes
        else {},
        "choices": list(map(dataclasses.asdict, run.choices)),
        "declined": list(map(dataclasses.asdict, run.declined)),
        "warnings": warnings(run),
    }
    return {
        **run.network_params,
        **run.pick("dataset", "variant", "seed"),
        **({} if run.settings.share else run.pick("share")),
        **{  # the files of tables, whose identities the stages have
            key: pathlib.Path(name).name
            for key, name in run.pick("multiplier", "test_multiplier").items()
            if name != getattr(run, f"{key}_identity")
        },
        **{key: value for key, value in may_be_empty.items() if value},
    }


def warnings(run: Run) -> list[str]:
    """What makes the numbers of a run with one's own pictures uncertain, a sentence each."""
    settings, steps = run.settings, None
    if settings.dataset != FOLDER:
        return []
    if run.network.trains and settings.training != "patches":
        per_epoch = -(-run.training_images // settings.batch_size)
        steps = settings.epochs * per_epoch if settings.steps == "none" else settings.steps
    source = dataset_facts.pictures(settings)
    counts = listing.training_counts(source, settings.test_share) if source.classes else []
    return recipe.warnings(run.training_images, counts, steps)


def listed(entries: Sequence[Entry]) -> list[Params]:
    """The entries of a list as the parameter of a page."""
    return [
        {
            "overrides": entry.overrides,
            "reason": entry.reason,
            **({"name": entry.name} if entry.name else {}),
            **({"tags": list(entry.tags)} if entry.tags else {}),
        }
        for entry in entries
    ]
