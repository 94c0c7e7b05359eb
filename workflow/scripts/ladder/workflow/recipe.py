"""What `auto` stands for, and which settings follow from the number and the size of pictures of
one's own.

Rules are data and functions of what is known of the pictures; `fill` lays them under the keys that
a person wrote, which always win. The recipe for pictures without a network of one's own was found
on fourteen folders: benchmarks/own_pictures.py measures it on ten, docs/data.md has the table.
"""

import dataclasses
import math
import textwrap
from typing import Any, NamedTuple

from ladder.classifiers import looks
from ladder.classifiers.looks import Looks
from ladder.data import facts as dataset_facts
from ladder.data.facts import FOLDER, Facts
from ladder.network import networks
from ladder.store.roles import PIXELS, RANDOM, STRONG
from ladder.workflow.settings import Settings

# What `auto` is for any data set that is no folder, and beside a network that a person named.
PLAIN = {"network": "wta_autoencoder", "normalization": "unit", "features_pool": "none"}
# Key -> value of the recipe, where it depends on nothing.
FITTED = {
    "network": "patch_net",
    "training": "patches",
    "normalization": "standardize",
    "patches_samples": [50_000, 30_000],
    "features_standardize": True,
}
# Filters of the patch network and of the encoder. The first ones of large images answer for four
# times as many pixels, and half as many gave the same accuracy.
FILTERS, FILTERS_OF_LARGE = ([200, 64, 100, 400], [128, 128]), ([100, 64, 100, 400], [64, 128])
ENCODER = {
    "network": "autoencoder",
    "autoencoder_filters": [128, 128],
    "features_layer": "enc2",
    "features_max_pool": 2,
}
APPENDED = {**ENCODER, "autoencoder_norm": True, "features_two_polarity": 0.25}
# The best untrained network that is cheap, laid over the run's own settings.
UNTRAINED = {
    **ENCODER,
    "autoencoder_norm": False,
    "training": "gradient",
    "features_two_polarity": 0.5,
    "features_polarity_scale": "channel",
    "features_concatenate": [],
}
SMALL, LARGE = 32, 64  # sides of images
LARGE_FROM = 48  # pixels on the median shorter side
GRIDS = (4, 3, 2, 5, 7)  # of average-pooling, the first that divides a map
VALUES, WEIGHT = 7_200, 2  # of a patch network, and the weight of what is appended to so many
MOST_WITHOUT_PCA, COMPONENTS = 5_000, 256
MOST_FOR_SVM = 2_000  # training pictures
MOST_CLASSIFIED, MOST_TESTED = 20_000, 10_000  # training and test pictures
MIRRORED, MIRRORED_DOWN_TO = 0.60, 0.55  # shares told from mirror images, and the interval's end
FEW, FEW_OF_A_CLASS, FEW_STEPS = 64, 10, 1_000


@dataclasses.dataclass(frozen=True)
class Choice:
    """keys: values that a rule has chosen; reason: why, in a few words."""

    keys: dict[str, Any]
    reason: str

    @property
    def line(self) -> str:
        return f"{', '.join(f'{key} {_text(value)}' for key, value in self.keys.items())} ({self.reason})"


# The rules.


def image_size(side: int) -> Choice:
    """side: the median shorter side of the pictures."""
    sides = [LARGE if side >= LARGE_FROM else SMALL] * 2
    return Choice(
        {"image_size": sides},
        f"the median shorter side of your pictures is {side} pixels; {LARGE} from {LARGE_FROM} on",
    )


def features(shape: tuple[int, ...]) -> list[Choice]:
    """The networks for images of this shape, (height, width, channels)."""
    filters, encoder_filters = FILTERS if max(shape[:2]) < LARGE else FILTERS_OF_LARGE
    fitted = {**FITTED, "patch_net_filters": filters}
    net = networks.from_params({**fitted, "image": shape})
    height, width, channels = net.layer(net.features).output_shape
    pool = grid(height, width) if max(height, width) > GRIDS[0] else "none"
    cells = height * width if isinstance(pool, str) else pool**2
    return [
        Choice({**fitted, "features_pool": pool}, "fitted to patches, without labels"),
        Choice(
            {
                "features_concatenate": [
                    {
                        **APPENDED,
                        "autoencoder_filters": encoder_filters,
                        "features_pool": encoder_grid(shape),
                        "weight": weight(cells * channels),
                    }
                ]
            },
            "an autoencoder's encoder, fitted too: it knows textures, the patch network knows lines",
        ),
    ]


def grid(*sides: int) -> int | str:
    """Side of the grid to which maps of these sides are average-pooled."""
    return next((size for size in GRIDS if all(side % size == 0 for side in sides)), "none")


def encoder_grid(shape: tuple[int, ...]) -> int | str:
    """The same for the maps of ENCODER, of a quarter of the sides of images of this shape."""
    return grid(*(side // 4 for side in shape[:2]))


def weight(values: int) -> float:
    """The weight of the encoder's features beside this number of a patch network's."""
    return round(WEIGHT * math.sqrt(values / VALUES), 3)


def mirror_images(seen: Looks) -> Choice:
    """Whether features are averaged with those of mirror images."""
    if not seen.count:
        return Choice({"features_flip": False}, "too few pictures to compare with mirror images")
    from ladder.pages import intervals  # here, because Jinja would delay every command

    share = seen.right / seen.count
    alike = share < MIRRORED and intervals.wilson(share, seen.count)[0] <= MIRRORED_DOWN_TO
    words = "look" if alike else "do not look"
    return Choice(
        {"features_flip": alike},
        f"pictures {words} like their mirror images: kernel ridge tells {100 * share:.0f} % of "
        f"{seen.count} from them",
    )


def components(images: int) -> Choice | None:
    if images <= MOST_WITHOUT_PCA:
        return None
    return Choice({"features_pca": COMPONENTS}, f"more than {MOST_WITHOUT_PCA:,} training pictures")


def test_share(pictures: int, share: float) -> Choice | None:
    """The share to test on, if `share` of this number of pictures is more than enough; pictures:
    those with a label, or all if none has one.
    """
    if share * pictures <= MOST_TESTED:
        return None
    return Choice(
        {"test_share": round(MOST_TESTED / pictures, 6)},
        f"{MOST_TESTED:,} of {pictures:,} pictures say enough",
    )


def classified(images: int) -> Choice | None:
    if images <= MOST_CLASSIFIED:
        return None
    return Choice(
        {"classify_rows": MOST_CLASSIFIED},
        f"of {images:,} training pictures; the network learns from all, and the table has all",
    )


def classifiers(images: int) -> Choice:
    """Kernel ridge answers; the SVM, whose time grows faster, stands beside it where that is
    short.
    """
    from ladder.classifiers import ridge  # here, because SciPy would delay every command

    if images < ridge.LEAST:
        return Choice({"evaluations": []}, f"kernel ridge needs {ridge.LEAST} training pictures")
    if images <= MOST_FOR_SVM:
        return Choice(
            {"evaluations": ["ridge"], "svm_C": "validated"},
            "kernel ridge answers, the SVM stands beside it",
        )
    return Choice(
        {"evaluations": ["ridge"], "svm_kernel": "none"},
        f"kernel ridge answers; above {MOST_FOR_SVM:,} training pictures the SVM takes most of the "
        "time: svm_kernel=rbf fits it too",
    )


def controls() -> Choice:
    return Choice(
        {"controls": [RANDOM, STRONG, PIXELS]}, "the best cheap untrained network stands beside"
    )


def untrained(shape: tuple[int, ...]) -> dict[str, Any]:
    """The overrides of the control `strong`."""
    return {**UNTRAINED, "features_pool": encoder_grid(shape)}


def batch(wanted: int, images: int) -> Choice | None:
    if wanted <= images:
        return None
    return Choice({"batch_size": images}, f"there are no more training images than {images}")


def most_components(wanted: int | str, rows: int) -> Choice | None:
    if wanted == "none" or int(wanted) < rows:
        return None
    return Choice({"features_pca": rows - 1}, f"PCA is fitted to {rows} training images")


def warnings(images: int, counts: list[int], steps: int | None) -> list[str]:
    """What makes the numbers of a run with one's own pictures uncertain, a sentence each.

    images  training pictures
    counts  those of each class
    steps   of the training by gradient descent, None without one
    """
    least = min(counts, default=FEW_OF_A_CLASS)
    return [
        words
        for is_so, words in (
            (images < FEW, f"{images} training pictures are few: {FEW} and more are better"),
            (
                least < FEW_OF_A_CLASS,
                f"a class has {least} training picture{'s' if least != 1 else ''}: {FEW_OF_A_CLASS} and more are "
                "better",
            ),
            (
                steps is not None and steps < FEW_STEPS,
                f"{steps} steps of training are few: {FEW_STEPS:,} and more are better (steps)",
            ),
        )
        if is_so
    ]


# Laid under what a person wrote.


class Filled(NamedTuple):
    """Settings with what the rules say.

    settings  without `auto`
    chosen    what rules have set
    declined  what rules would have set for the images, where a person wrote something else
    """

    settings: Settings
    chosen: tuple[Choice, ...]
    declined: tuple[Choice, ...]


def fill(given: Settings) -> Filled:
    """Loaded settings with what the rules say in place of `auto` and of keys that nobody wrote."""
    filled, chosen, declined = given, [], []

    def take(choice: Choice | None, over: bool = False) -> None:
        """A choice's keys, but for those that are written, unless they cannot be as written."""
        nonlocal filled
        keys = choice.keys if choice else {}
        free = {key: value for key, value in keys.items() if over or not is_written(given, key)}
        if choice and free:
            filled = laid_over(filled, free)
            chosen.append(dataclasses.replace(choice, keys=free))

    if given.dataset == FOLDER and given.network == "auto":
        seen = looks.find(dataset_facts.pictures(given))
        for choice in (image_size(seen.side), mirror_images(seen)):
            take(choice)
            declined += [choice] if _differs(given, choice) else []
        source = dataset_facts.pictures(given)
        if not source.has_test:
            take(
                test_share(sum(source.counts("train")) or len(source.unlabelled), given.test_share)
            )
        facts = dataset_facts.find(filled)
        images = training_images(filled, facts)
        for rule in (*features(facts.shape), components(images), classified(images)):
            take(rule)
        if facts.classes:
            take(classifiers(images - facts.unlabelled))
            take(controls())
    if given.dataset == FOLDER and filled.controls and PIXELS not in filled.controls:
        take(
            Choice({"controls": [*filled.controls, PIXELS]}, "raw pixels always stand beside"), True
        )
    plain = {key: value for key, value in PLAIN.items() if getattr(filled, key) == "auto"}
    filled = filled.model_copy(update=plain)
    images = training_images(filled, dataset_facts.find(filled))
    take(batch(filled.batch_size, images), True)
    take(most_components(filled.features_pca, min(filled.features_fit_rows, images)), True)
    return Filled(filled, tuple(chosen), tuple(declined))


def is_written(given: Settings, key: str) -> bool:
    """Whether a person wrote the key, and not `auto`."""
    return key in given.model_fields_set and getattr(given, key) != "auto"


def _differs(given: Settings, choice: Choice) -> bool:
    return any(
        is_written(given, key) and getattr(given, key) != value
        for key, value in choice.keys.items()
    )


def laid_over(settings: Settings, keys: dict[str, Any]) -> Settings:
    return settings.model_copy(update=keys)


def training_images(settings: Settings, facts: Facts) -> int:
    """Number of training images without the validation set."""
    images = facts.train if settings.train_limit == "all" else settings.train_limit
    return images - settings.validation


def _text(value: Any) -> str:
    """A long value's first words; the report has all."""
    if isinstance(value, bool):
        return str(value).lower()
    return textwrap.shorten(str(value).replace("'", ""), 40, placeholder=" ...")
