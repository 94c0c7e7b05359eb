"""The settings of a run: type, limits, default, section and description of every key of the
configuration, in one place.

docs/generate.py makes docs/configuration.md, the schema for editors and config.yaml's comments from
it. Whether keys go together is checked in checks.py.
"""

import functools
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal, get_origin, get_type_hints

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, with_config
from pydantic_core import CoreSchema, core_schema
from typing_extensions import TypedDict  # with Python 3.11 pydantic takes no other

from ladder.rungs import catalog
from ladder.workflow.values import (
    INTEGER,
    LISTED,
    MOST,
    NUMBER,
    TEXT,
    Amount,
    Count,
    Flag,
    NotNegative,
    Positive,
    Several,
    T,
    expected,
    rule_of,
)

PATH = Field(min_length=1, max_length=4096)
DOCUMENTED = ConfigDict(extra="forbid", use_attribute_docstrings=True)
Seed = Annotated[int, Field(ge=0, le=2**32 - 1), INTEGER]
Side = Annotated[int, Field(ge=4, le=512), INTEGER]  # of an image
FilterSide = Annotated[int, Field(ge=1, le=128), INTEGER]
Width = Annotated[int, Field(ge=1, le=65536), INTEGER]  # of a layer: its filters or units
Runs = Several[
    Annotated[
        dict[Any, Any], expected("keys of this file with other values, and perhaps a name or a tag")
    ]
]
Part = Annotated[dict[Any, Any], expected("keys of this file with other values, and a weight")]
Version = Annotated[str, Field(max_length=100), expected("a version"), TEXT]
Tag = Annotated[
    str, Field(min_length=1, max_length=50), expected("one line of at most 50 characters"), TEXT
]
Sha256 = Annotated[
    str,
    Field(pattern=r"^[0-9a-f]{64}$"),
    expected("64 lower-case hex digits, as sha256sum prints them"),
    TEXT,
]
Costs = Annotated[
    dict[
        Annotated[str, Field(min_length=1, max_length=100), TEXT],
        dict[Annotated[str, PATH, TEXT], Positive],
    ],
    expected("sources, each with the names of multipliers and a cost above 0"),
]
Direction = Literal["forward", "input_grad", "weight_grad"]
OurNetwork = Literal[
    "auto",
    "autoencoder",
    "wta_autoencoder",
    "autoencoder_classifier",
    "lenet_300_100",
    "lenet_5",
    "small_cnn",
    "alexnet",
    "vgg11",
    "vgg16",
    "resnet18",
    "resnet34",
    "resnet50",
    "resnet101",
    "patch_net",
]
OwnNetwork = Annotated[
    str,
    Field(pattern=r"\.ya?ml$", max_length=4096),
    expected("the path of a .yaml file with a table of layers"),
    TEXT,
]


class RungOr:
    """The type of a key that names a rung of the ladder, or is `word`."""

    def __init__(self, word: str) -> None:
        self.word = word

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> CoreSchema:
        return core_schema.literal_schema([self.word, *catalog.RUNGS])


def _distinct(values: list[T]) -> list[T]:
    if any(value in values[:number] for number, value in enumerate(values)):
        raise ValueError("a value is there twice")
    return values


Distinct = Annotated[
    list[T], AfterValidator(_distinct), Field(json_schema_extra={"uniqueItems": True}), LISTED
]


def own_settings(controls: Sequence[Any]) -> dict[str, dict[str, Any]]:
    """Kind of control -> the settings that it alone has, from the key `controls`."""
    own: dict[str, dict[str, Any]] = {}
    for control in controls:
        own |= control if isinstance(control, dict) else {control: {}}
    return own


def _once(controls: list[Any]) -> list[Any]:
    if len(own_settings(controls)) < len(controls):
        raise ValueError("a control is there twice, or none is named")
    return controls


def _address(value: str) -> str:
    if "://" in value and not value.startswith(("http:", "https:", "file:")) or not value:
        raise ValueError("no address")
    return value


def _files_or_folder(values: list[str], count: int) -> list[str]:
    if len(values) != count and (
        len(values) != 1 or values[0].startswith(("http:", "https:", "file:"))
    ):
        raise ValueError("another number of files")
    return values


FILES = "a list of {} http, https or file addresses or paths, or the path of a folder"
Address = Annotated[
    str,
    Field(max_length=4096),
    AfterValidator(_address),
    expected("an http, https or file address, or a path"),
    TEXT,
]
TwoFiles = Annotated[
    list[Address],
    AfterValidator(functools.partial(_files_or_folder, count=2)),
    expected(FILES.format(2)),
    LISTED,
]
FourFiles = Annotated[
    list[Address],
    AfterValidator(functools.partial(_files_or_folder, count=4)),
    expected(FILES.format(4)),
    LISTED,
]


@with_config(
    ConfigDict(
        extra="forbid",
        json_schema_extra={
            "expected": "a metric of summary.json with one bound, at_least or at_most"
        },
    )
)
class Target(TypedDict, total=False):
    metric: Annotated[str, Field(max_length=200), expected("a name in summary.json"), TEXT]
    at_least: Annotated[float, Field(ge=-1e300, le=1e300), expected("a number"), NUMBER]
    at_most: Annotated[float, Field(ge=-1e300, le=1e300), expected("a number"), NUMBER]


def _bounded(targets: list[Target]) -> list[Target]:
    if any("metric" not in target or len(target) != 2 for target in targets):
        raise ValueError("a metric needs one bound")
    return targets


@with_config(
    ConfigDict(
        **DOCUMENTED,
        json_schema_extra={
            "expected": "a section with keys: and perhaps strategy, budget, metric, validation, seed, prune, tag"
        },
    )
)
class Search(TypedDict, total=False):
    strategy: Literal["random", "grid", "tpe"]
    """`random` draws each run (default); `grid` takes every combination, and of a range as many
    values as its `points` (3). `tpe` draws each run from the results of those before it, by the
    tree-structured Parzen estimator of Optuna, one run after another; `results/search.db` has the
    study for Optuna's own tools.
    """
    prune: Annotated[int, Field(ge=0, le=1_000_000), INTEGER]
    """With `tpe`, the number of epochs after which a run is given up if its loss on the validation
    images is above the median of the runs before it, of which five are made whole. The first epochs
    are a training of their own. 0 (default) gives up none."""
    budget: Annotated[int, Field(ge=1, le=1000), INTEGER]
    """Number of runs (20 by default). A larger budget keeps the runs of a smaller one."""
    metric: Literal["auto", "network", "svm"]
    """The accuracy that ranks the runs: of the `network` or of the `svm`. `auto` (default) is that
    of whichever classifies."""
    validation: Count
    """Number of training images that rank the runs, by default 10 % of them. The test set is never
    read.
    """
    seed: Seed
    """Seed of the draws (1 by default)."""
    tag: Tag
    """The tag of its trials, `search` by default."""
    keys: Annotated[
        dict[Any, Any],
        expected("keys of this file, each with a list of values or a range {min: 1, max: 9}"),
    ]
    """The hyperparameters to search, each a list of values or a range, such as
    `{learning_rate: {min: 1e-4, max: 1e-1, scale: log}, optimizer: [adam, sgd]}`."""


class Section(BaseModel):
    """Keys under one heading."""

    model_config = ConfigDict(frozen=True, validate_default=True, defer_build=True, **DOCUMENTED)
    heading: ClassVar[tuple[str, str]]  # of docs/configuration.md, and below it


class Data(Section):
    heading = "The experiment", "Data"

    dataset: Literal[
        "mnist_small", "digits", "mnist", "fashion_mnist", "svhn", "cifar10", "cifar100", "folder"
    ] = "mnist_small"
    """The data set. `mnist_small` has 12,000 of MNIST's handwritten digits and comes with the
    program; `digits` has 1,797 others that come with scikit-learn, enlarged to 32x32 pixels, and is
    a smoke test. `mnist` has 70,000 digits of 28x28 pixels (11 MB to download), `fashion_mnist` as
    many pictures of clothes (31 MB), `svhn` 99,289 house numbers of 32x32 pixels in colour (246
    MB), `cifar10` and `cifar100` 60,000 colour photographs of 32x32 pixels each, in 10 and 100
    classes (170 MB). `svhn` is without its `extra` images, and the labels of `cifar100` are the
    fine ones. `folder` takes pictures of your own.
    """
    folder: Annotated[
        str, PATH, expected("none, or the path of a folder or of a .npz file"), TEXT
    ] = "none"
    """Pictures of your own, for the dataset `folder`: a folder of pictures (PNG, JPEG, WebP, GIF,
    BMP, TIFF or PNM), with or without a folder for each class, or a `.npz` file with `images`
    (uint8, N x H x W or N x H x W x 3), and perhaps `labels`, `test_images`, `test_labels` and
    `classes` (their names), or the arrays of MedMNIST or Keras. Pictures that cannot be read are
    skipped and named in the report. The version follows from the names and the content of the
    pictures, not from the path.
    """
    labels: Annotated[
        str, PATH, expected("auto, folders, none, or the path of a table in CSV"), TEXT
    ] = "auto"
    """Where the labels of `folder` come from. `folders`: each folder of pictures is a class, 2 to
    256 of them, or each folder in `train` and `test`; the pictures of a folder `unlabelled` beside
    them have none. `auto` is that where at least two folders have pictures, and else `none`: no
    picture has a label, whatever folder it lies in. The path of a CSV file with the columns `name`
    and `label` gives labels by the names of pictures below the folder (of a `.npz` file, numbers of
    rows), to few of them or to all. All pictures are learned from; classifiers and accuracies are
    of those with a label.
    """
    leave_out: Annotated[str, PATH, expected("none, or the path of a list of names"), TEXT] = "none"
    """A file with names of pictures of `folder` that are left out, one on each line: the path below
    the folder, or the number of a row. The report of pictures without labels offers such lists of
    copies and outliers."""
    share: Flag = True
    """Whether pages show your pictures of `folder` and their names. With `false` pages can be given
    to people who must not see them: they have numbers and charts alone. `results/features.parquet`,
    `scored_images.csv` and the artifacts keep the names."""
    image_size: Annotated[list[Side], Field(max_length=2, min_length=2), LISTED] = [32, 32]
    """Height and width to which pictures of `folder` are scaled, as those for `predict` are: to the
    shorter side, antialiased, and cropped around their centre."""
    image_channels: Annotated[Literal[3, 1], INTEGER] = 3
    """Channels of the images of `folder`, `3` for colour and `1` for grey."""
    test_share: Annotated[float, Field(gt=0, lt=1), NUMBER] = 0.2
    """Share of the pictures of each class of `folder`, or of all without labels, that are test
    pictures, where there is no test part. They are chosen by a hash of their names."""
    train_limit: Literal["all"] | Count = "all"
    """Number of training images. A number takes a subset that is balanced by class; `all` takes the
    whole training set."""
    test_limit: Literal["all"] | Count = "all"
    """Number of test images. A number takes a subset that is balanced by class; `all` takes the
    whole test set.
    """
    validation: Amount = 0
    """Number of training images put aside as the validation set, also called a hold-out set,
    balanced by class; accuracies are measured on them and the test set is never read. A training
    measures its loss on them after every epoch, and its accuracy if the network classifies: a
    second, dashed curve in the report, `validation_losses` and `validation_hits` in
    `history.safetensors`. Measuring changes no byte of the weights; it takes a forward pass of
    these images each time. 0 uses no validation set, and accuracies are measured on the test set.
    """
    normalization: Literal["auto", "unit", "standardize", "zca"] = "auto"
    """How pixels become network inputs. `auto` is `unit`, and `standardize` with the recipe for
    pictures of your own (`network`). `unit` divides them by 255. `standardize` gives every
    colour channel mean 0 and standard deviation 1. `zca` whitens the images (ZCA). Statistics are
    computed on the training images only.
    """


class Network(Section):
    heading = "The experiment", "Network"

    network: OurNetwork | OwnNetwork = "auto"
    """The network, one of ours or the path of a file. `auto` is `wta_autoencoder`. Of pictures of
    your own (`folder`) it is a recipe instead, which also sets what is not set here of the keys
    below: a patch network and a small autoencoder's encoder, both fitted to patches, whose features
    kernel ridge regression classifies. Each choice is printed with its reason, and the report has
    it ([docs/data.md](data.md)). `autoencoder` has 3x3 convolutions with
    pooling and a mirrored decoder; it learns without labels, and an SVM classifies its features.
    `wta_autoencoder` has one convolution whose code keeps only the largest value of each map, and a
    linear decoder; it learns without labels too. `autoencoder_classifier` is the encoder of
    `autoencoder` with a head of two dense layers, trained with labels; its encoder comes from
    `initial_weights`, the weights of an autoencoder, or from a fit to patches (`training`), else it
    is random. `lenet_300_100`, `lenet_5`, `small_cnn`, `alexnet`, `vgg11`, `vgg16`, `resnet18`,
    `resnet34`, `resnet50` and `resnet101` are trained with labels and classify by themselves.
    `patch_net` has two layers that are fitted to image patches and is never trained by gradient
    descent; it needs `training: patches`. The path of a `.yaml` file is a network of your own, a
    table of layers as docs/networks.md describes it; its content is part of the versions.
    `snakemake results/network.html` draws the network.
    """
    autoencoder_filters: Annotated[list[Width], Field(max_length=8, min_length=1), LISTED] = [
        256,
        128,
    ]
    """Number of filters of each convolution of the encoder; the decoder mirrors them. The default
    gives 751,875 parameters and 8,192 latent values on CIFAR-10."""
    autoencoder_norm: Flag = False
    """From the second convolution of the encoder on, use a 3x3 convolution, an L2 normalisation of
    the channel vector of each pixel, and a 1x1 convolution in place of one 3x3 convolution."""
    autoencoder_residual: Flag = False
    """Make each convolution of the encoder, with its ReLU, the beginning of a residual block: a
    second 3x3 convolution with as many filters follows, the block's input is added to its output,
    through a 1x1 convolution if they differ in channels, then ReLU and pooling. Of `autoencoder`
    and `autoencoder_classifier`, trained by gradient descent."""
    autoencoder_attention: Flag = False
    """Add attention with one head over the pixels of the encoder's last map (8x8 with the default
    filters) to that map; the sum is the latent values. Of `autoencoder` and
    `autoencoder_classifier`, trained by gradient descent.
    """
    latent_penalty: NotNegative = 0
    """Coefficient of an L1 penalty on the latent values of `autoencoder`: the sum of their
    magnitudes, times this number, is added to the sum of the squared errors. 0 has no penalty."""
    variational: Flag = False
    """Make `autoencoder` a variational one: its encoder gives a mean and a log-variance for each
    latent value, by a 1x1 convolution each, and in training the decoder reads a draw from that
    normal distribution. Evaluation and features use the mean (layer `mean`). The report has the
    divergence beside the loss, and pictures decoded from samples of the prior. Needs `training:
    gradient`.
    """
    variational_beta: Annotated[
        float, Field(le=MOST, gt=0), expected("a number above 0 and at most 1e9"), NUMBER
    ] = 0.1
    """With `variational`: weight of the Kullback-Leibler divergence of an image's latent
    distribution from the standard normal distribution, in nats, which is added to the sum of its
    squared errors. The larger it is, the more samples of the prior look like images, and the less
    of an image the latent values tell.
    """
    head_units: Width = 128
    """Number of units of the first dense layer of the head of `autoencoder_classifier`."""
    wta_filters: Width = 8
    """Number of filters of `wta_autoencoder`."""
    wta_kernels: Annotated[list[FilterSide], Field(max_length=2, min_length=2), LISTED] = [11, 7]
    """Sides of the filters of the encoder and of the decoder of `wta_autoencoder`; both odd or both
    even.
    """
    wta_winners: Annotated[int, Field(ge=1, le=16384), INTEGER] = 1
    """Number of values of each map (the responses of one filter to an image) that the code of
    `wta_autoencoder` keeps, the largest ones; the others are set to 0. Features are computed
    without this sparsity.
    """
    wta_lifetime: Annotated[
        float, Field(le=1, gt=0), expected("a number above 0 and at most 1"), NUMBER
    ] = 0.2
    """Share of the images of a batch that keep the winners of a map of `wta_autoencoder` in
    training: those with the largest winners. 1 keeps those of all images. A small share makes every
    filter learn, whatever the others do."""
    input_noise: Annotated[
        float, Field(ge=0, lt=1), expected("a number at least 0 and below 1"), NUMBER
    ] = 0
    """Share of the input's values that are set to 0 at random in the training of `autoencoder` and
    `wta_autoencoder`, which then rebuild the whole image (a denoising autoencoder). 0 has no noise.
    """
    patch_net_filters: Annotated[list[Width], Field(max_length=4, min_length=4), LISTED] = [
        800,
        256,
        400,
        1600,
    ]
    """The sizes of `patch_net`: filters of layer 1, PCA components kept of its output, PCA
    components of 3x3 patches of those, and filters of layer 2."""
    patch_net_kernel: Annotated[int, Field(ge=2, le=128), INTEGER] = 6
    """Side of the filters of layer 1 of `patch_net`, at most the smaller side of the images minus
    12. Another one in `features_concatenate` joins features of patches of two sizes. The last
    pooling takes the means of 5x5 pixels, or of 4x4 where only these cover its map exactly (as with
    8 on 32x32; never with 6) or where the map has only 4 on a side."""
    resnet_width: Annotated[int, Field(ge=1, le=4096), INTEGER] = 64
    """Number of filters of the first stage of a ResNet; each later stage has twice as many as the
    one before.
    """
    initial_weights: Annotated[str, PATH, expected("none or the path of a weights file"), TEXT] = (
        "none"
    )
    """Path of a weights file (`weights.bin` or `weights.safetensors`) of the same network to start
    from; of `autoencoder_classifier` also one of the `autoencoder` with the same encoder, and the
    head is drawn from the seed. `none` draws the initial weights from the seed. With `epochs` 0 the
    weights of the file are used as they are; `runs: [{epochs: 0}]` shows what training added to
    them.
    """
    seed: Seed = 1
    """Seed of the random numbers: initial weights, order of the training images, augmentation,
    dropout, patches, and samples of images."""


class TrainingKeys(Section):
    heading = "The experiment", "Training"

    training: Literal["gradient", "patches", "patches_then_gradient"] = "gradient"
    """How the network gets its weights. `gradient` trains it by gradient descent. `patches` fits
    the encoder's layers to patches of the training images, without labels or gradients, and then
    trains the decoder alone. `patches_then_gradient` does the same and then trains all layers
    together for `epochs` or `steps`.
    """
    freeze_encoder: Flag = False
    """Of `autoencoder_classifier`: `true` trains its head alone and leaves the encoder as it was;
    `false` trains all layers (fine-tuning)."""
    batch_size: Count = 64
    """Number of images in a training step; of fewer training images all of them, which a line
    says. The last, smaller batch of an epoch is trained on too.
    """
    epochs: Amount = 10
    """Number of passes over the training images. Not used where `steps` is a number. 0 trains
    nothing: the features or the network's evaluation come from `initial_weights`, or from random
    weights, which are then their own control. Where only `epochs` (or `steps`) was raised and the
    finished shorter training is in `results/`, the longer one goes on from it, to the same bytes;
    `-n` says so. This is possible under the schedules `constant` and `step`, whose learning rates
    do not depend on the length once `warmup_steps` fit into the shorter training. For it a training
    keeps the running averages of its optimizer, `state.safetensors`: twice the size of the weights
    for `adam`, once for `momentum` and `rmsprop`, and with `patience` its last weights. A training
    that is made again (`-R`, `-f`, `-F`, or after its folder was removed) begins at its first step.
    """
    steps: Literal["none"] | Amount = "none"
    """Number of training steps; 0 trains nothing, as `epochs` 0. `none` trains for `epochs`."""
    patience: Amount = 0
    """Early stopping: end a training when the loss on the validation images has not fallen for this
    number of epochs, and keep the weights of the epoch where it was smallest, also of a training
    that is not stopped. It needs `validation`. The scores of the run are then measured on the
    images that have chosen the epoch, so they are slightly optimistic. 0 makes all epochs and keeps
    the last weights.
    """
    optimizer: Literal["sgd", "momentum", "rmsprop", "adam"] = "adam"
    """The update rule of the weights: `sgd` (plain gradient descent), `momentum`, `rmsprop` or
    `adam`. docs/math.md has the formulas."""
    learning_rate: Annotated[
        Positive, expected("a number above 0 and at most 3.4e+38 (epochs 0 trains nothing)")
    ] = 0.001
    """The learning rate after the warm-up, before `schedule` changes it."""
    momentum: Annotated[float, Field(ge=0, lt=1), NUMBER] = 0.9
    """The momentum coefficient. Only the optimizer `momentum` uses it."""
    weight_decay: NotNegative = 0
    """Coefficient of the L2 penalty; weight_decay * weight is added to the gradient, after
    clipping.
    """
    gradient_clip: NotNegative = 0
    """Largest absolute value of an element of the gradient; larger elements are clipped. 0 does not
    clip.
    """
    gradient_scale: Literal["mean", "batch"] = "mean"
    """Scale of the gradient of the squared error. `mean` divides 2 (prediction - target) by the
    number of all elements, `batch` by the number of images in the batch."""
    schedule: Literal["constant", "step", "cosine"] = "constant"
    """The learning rate schedule. `constant` keeps it. `step` multiplies it by
    `schedule_step_factor` every `schedule_step_epochs` epochs. `cosine` lets it fall to 0 along
    half a cosine.
    """
    schedule_step_epochs: Count = 10
    """Number of epochs between two changes of the learning rate under `schedule` step. Where the
    training has no more epochs than that the learning rate stays, and a line says so."""
    schedule_step_factor: Annotated[float, Field(le=1, gt=0), NUMBER] = 0.1
    """Factor by which `schedule` step multiplies the learning rate."""
    warmup_steps: Amount = 150
    """Number of steps over which the learning rate rises linearly to its value. 0 uses no warm-up.
    A training of fewer steps than that takes a tenth of its steps instead, and says so when it is
    planned, in its log and in the report."""
    augment_flip: Flag = False
    """Mirror each training image left to right with probability 1/2."""
    augment_crop: Annotated[int, Field(ge=0, le=32), INTEGER] = 0
    """Shift each training image by up to this number of pixels in both directions, with zeros
    outside (a random crop of the padded image). 0 does not shift."""
    augment_rotate: Annotated[float, Field(ge=0, le=45), NUMBER] = 0
    """Rotate each training image about its centre by a random angle of up to this number of degrees
    in either direction, between its pixels (bilinear), with zeros outside. 0 does not rotate."""
    augment_colour: Annotated[
        float, Field(ge=0, lt=1), expected("a number at least 0 and below 1"), NUMBER
    ] = 0
    """Multiply each colour channel of each training image by a random factor between 1 minus and 1
    plus this number (colour jitter), before the normalisation; of whitened images (`zca`) after it.
    0 leaves the colours.
    """


class Arithmetic(Section):
    heading = "The experiment", "Arithmetic"

    precision: Literal["float32", "tf32", "bfloat16", "float16"] = "float32"
    """Mixed precision: what convolutions and dense layers multiply, in all passes, the test and the
    features: `float32` numbers, or numbers rounded to the 10 bits of mantissa of `tf32`, to the 7
    of `bfloat16`, or to the 10 of `float16`, as tensor cores take them; float16, the only one of
    these that a T4 or an RTX 20 has, ends at 65504 and needs `loss_scale`. Sums, weights and
    everything else are float32. Every rung rounds at the same places: where numbers are rounded, a
    3x3 convolution behind an upsampling multiplies phase weights (docs/math.md), sums of taps, each
    rounded once. `variant: auto` takes a rung that multiplies with tensor cores only where this key
    asks for its precision or where the rung is as accurate as float32.
    """
    multiplier: Annotated[
        str, PATH, expected("the name of a multiplier or the path of a table"), TEXT
    ] = "exact"
    """The multiplier that computes the products of convolutions and dense layers; sums are always
    float32. `exact` is float32. `acc16` truncates the operands to bfloat16. `am32` and `am16` are
    the minimally biased multipliers, `mit32` and `mit16` Mitchell's logarithmic ones. `fp16` is
    half precision. Anything else is the path of a table of a multiplier of your own, of mantissas
    or of integers of 8 bits (docs/multipliers.md).
    """
    multiplier_in: Distinct[Direction] = ["forward", "input_grad", "weight_grad"]
    """The passes that use `multiplier`, a list of `forward`, `input_grad` (gradient with respect to
    a layer's input) and `weight_grad` (gradient with respect to its weights). The others are exact.
    """
    test_multiplier: Annotated[
        str, PATH, expected("same, the name of a multiplier or the path of a table"), TEXT
    ] = "same"
    """The multiplier at test time and for the features. `same` is the one of the forward pass of
    the training. Another one answers how a network that was trained exactly does on cheap
    arithmetic.
    """
    multiplier_as_it_is: Flag = False
    """`true` takes a table of integers as it is where another order of its entries, 32768
    subtracted, or the other sign is closer to the exact products, or where it is a known circuit's
    with the operands exchanged, which otherwise stops the run (docs/multipliers.md).
    """
    loss_scale: Positive = 1024
    """Factor by which gradients are multiplied until the weights are updated. Only the multiplier
    `fp16` and the precision `float16` use it, because of their small range of exponents
    (docs/math.md).
    """


class Patches(Section):
    heading = "The experiment", "Filters from patches (training: patches, patches_then_gradient)"

    patches_atoms: Literal["kmeans", "random"] = "kmeans"
    """Where the filters of a fitted layer come from: `kmeans` takes the centres of spherical
    k-means over whitened patches, `random` takes random whitened patches, each scaled to length 1.
    """
    patches_samples: Annotated[list[Count], Field(max_length=8, min_length=1), LISTED] = [
        400000,
        120000,
    ]
    """Number of patches for the first fitted layer, the second, and so on; the last number holds
    for all others.
    """
    patches_iterations: Count = 10
    """Number of iterations of k-means."""
    patches_whitening: Annotated[list[NotNegative], Field(max_length=8, min_length=1), LISTED] = [
        0.5,
        1,
    ]
    """Regularisation of the whitening of each fitted layer, in the order of `patches_samples`. It
    is added to the eigenvalues of the covariance, in units of their mean."""
    decoder_epochs: Count = 1
    """Number of epochs for which the decoder of a fitted encoder is trained alone."""


class Features(Section):
    heading = "The experiment", "Features, in the order in which they are computed"

    features_layer: Annotated[str, PATH, expected("auto or the name of a layer"), TEXT] = "auto"
    """Name of the layer whose output is used as features. `auto` is the latent layer of an
    autoencoder and the last layer of `patch_net`, and extracts no features from a network that
    classifies by itself.
    """
    features_two_polarity: Literal["none"] | NotNegative = "none"
    """Threshold a: the layer's output z is replaced by both relu(z - a) and relu(-z - a), which
    doubles the channels. It works best on a convolution before its ReLU, such as `enc2`. `none`
    keeps z.
    """
    features_polarity_scale: Literal["none", "channel"] = "none"
    """With `features_two_polarity`: `channel` standardises z by channel first, so that the
    threshold is in standard deviations. `none` uses z as it is."""
    features_max_pool: Literal["auto"] | Annotated[int, Field(ge=1, le=32), INTEGER] = "auto"
    """Side of the windows of a max-pooling, before `features_pool`. 1 does not pool. `auto` pools
    the maps of `wta_autoencoder` where `features_pool` does not, by the first of 4, 3 and 2 that
    divides them.
    """
    features_pool: Literal["auto", "none"] | Annotated[int, Field(ge=1, le=32), INTEGER] = "auto"
    """Side of the grid to which feature maps are average-pooled; 4 makes 4x4 of 8x8 latent pixels,
    2,048 features. It must divide the height and the width. `none` does not pool. `auto` is
    `none`, or what the recipe for pictures of your own says (`network`)."""
    features_flip: Flag | Literal["apart"] = False
    """Average the features of each image with those of its mirror image. `apart` also keeps half
    the difference of the two, for `ridge`, whose kernel then compares both images and is symmetric:
    an image and its mirror image have the same scores. It takes twice the memory and disk for
    features. The other classifiers use the average alone."""
    features_standardize: Flag = False
    """Scale every feature to mean 0 and standard deviation 1 over the training images."""
    features_pca: Literal["none"] | Count = "none"
    """Number of PCA components of the features, which are standardised first where
    `features_standardize` is on; at most one less than the images that it is fitted to, which a
    line says. `none` uses no PCA."""
    features_fit_rows: Annotated[int, Field(ge=2, le=MOST), INTEGER] = 10000
    """Number of training images, drawn by the seed, to which PCA, the standardisation before it,
    and `features_polarity_scale` are fitted."""
    features_concatenate: Annotated[list[Part], Field(max_length=100), LISTED] = []
    """Features of other runs to append. Each entry is a set of keys with other values and a
    `weight` (1 by default) by which the appended features are multiplied, such as `{features_layer:
    enc1_pool, weight: 0.5}`. What is trained already is used again. Keys that change no feature,
    such as those of the classifiers, are refused.
    """


class Classifiers(Section):
    heading = "The experiment", "Classifiers of the features"

    svm_kernel: Literal["rbf", "linear", "poly", "none"] = "rbf"
    """The kernel of the SVM (one-versus-one), `rbf`, `linear` or `poly`. `none` fits no SVM, where
    `evaluations` has `ridge`, which then answers alone."""
    svm_C: Literal["validated"] | Positive = 10
    """The penalty C of the SVM, the weight of its hinge loss. `validated` takes 10, or 100
    with a tenth of `svm_gamma`, whichever classifies more of the training images right when every
    other one of a class is left out."""
    svm_gamma: Literal["scale", "auto"] | Positive = "scale"
    """The kernel coefficient of the SVM; the linear kernel has none. `scale` is 1 / (features *
    variance), `auto` is 1 / features."""
    evaluations: Distinct[Literal["linear", "ridge", "knn"]] = []
    """Other classifiers of the same features, and of those of the controls. `linear` is multinomial
    logistic regression with an L2 penalty, its strength chosen on a tenth of the training images.
    `ridge` is kernel ridge regression with an RBF kernel, one-versus-rest; 50,000 images take 6 GB
    and minutes. `knn` is k nearest neighbours. A run with `ridge` answers by it instead of the SVM:
    the accuracy of the pages, predictions and the demo are its own. That is fixed, not chosen by
    the accuracies.
    """
    classify_rows: Literal["all"] | Annotated[int, Field(ge=20, le=MOST), INTEGER] = "all"
    """Number of training images that the classifiers are fitted to, the first ones: pictures of
    your own are in an order by a hash of their names in which the classes take turns. The network
    and its features are of all images; the features of the controls are of these and of the test
    images. Of pictures without labels it is the number that each is compared with, 20,000 for
    `all`, and at least the test pictures whose changed copies are sought, 1,000 at most."""
    label_counts: Distinct[Annotated[int, Field(ge=2, le=10_000), INTEGER]] = [
        10,
        30,
        100,
        300,
        1000,
    ]
    """Numbers of labels with which the features of an encoder that has seen none are classified
    too, for the report's curve of accuracy by labels: five draws, balanced over the classes, by
    kernel ridge regression. Numbers below that of the classes are left out, and so are those that
    are not below that of the training images; [] draws no curve.
    """
    knn_k: Count = 10
    """Number of neighbours that vote in `knn`, the nearest by the cosine of the angle."""
    classify_shifts: Literal["none"] | Annotated[int, Field(ge=1, le=511), INTEGER] = "none"
    """Every classifier of features decides by the mean of its decision values for an image and for
    four copies of it, shifted by this number of pixels along both diagonals, with the values at the
    edges repeated (test-time augmentation). That holds for the controls, predictions and the demo
    too, but not for a network that classifies by itself. The SVM takes the mean of the decisions
    between every two classes before they vote; in `knn` the neighbours of all five vote together.
    Classifiers are fitted to images that are not shifted, so the key asks for no other features of
    training images. `none` decides by the image alone.
    """
    feature_map: Flag = True
    """Show up to 1,000 test images in the report, laid out in the plane by t-SNE of their features.
    It takes seconds."""


class Controls(Section):
    heading = "The experiment", "Controls"

    controls: Annotated[
        list[
            Literal["random", "strong", "pixels"]
            | Annotated[
                dict[Literal["random"], dict[Any, Any]],
                expected("{random: keys with other values}"),
            ]
        ],
        AfterValidator(_once),
        Field(json_schema_extra={"uniqueItems": True}),
        LISTED,
    ] = ["random", "pixels"]
    """Baselines with the same classifiers: `random` is the features of the untrained network, whose
    weights are drawn from the seed whatever the run starts from; `strong` is the best
    untrained network that is cheap, an autoencoder's encoder with 128 and 128 random filters and
    two polarities. `pixels` is the raw pixels, with flip, standardisation and PCA as for the
    features, but of pictures of your own as they are, and these have it beside any other control.
    Of a network that classifies by itself,
    `pixels` is also logistic regression on the raw pixels, which the report sets beside it. An
    empty list saves their time. `{random: {wta_kernels: [8, 8]}}` in place of `random` gives that
    control other values of keys: what is best for a trained network is seldom best for random
    weights, and a control should be as good as it can be. Images, seed and what else the page sets
    side by side stay the run's; what says how a training goes has no effect.
    """
    targets: Annotated[
        list[Target],
        Field(max_length=100),
        AfterValidator(_bounded),
        expected(
            "a list of at most 100, each as {metric: test_accuracy, at_least: 0.6} or with at_most"
        ),
        LISTED,
    ] = []
    """What the run is to reach: the report and `summary.json` say for each target what was reached
    and whether it is met. `metric` is the name of a number in `summary.json`, such as
    `test_accuracy`, or of one in a group after a dot, such as `seconds.train`; of the numbers by
    epoch, such as `loss`, the last one counts. The bound is `at_least` or `at_most`. Part of the
    report's version only.
    """


class Machine(Section):
    heading = "How this machine runs it", "Part of a version, once `auto` is resolved"

    variant: Annotated[str, RungOr("auto")] = "auto"
    """The rung of the ladder, which is the set of kernels that runs; kernels/README.md describes
    them. `auto` is the fastest rung that passed `snakemake results/parity.html` on this machine;
    before that comparison the one that is predicted or was measured the fastest on a GPU of this
    kind, which a line names with the reason
    ([by card](architecture.md#which-rung-auto-takes)), and `cpu` without one. Before a
    rung of a GPU computes for the first time with a network on this GPU, driver and program, a few
    steps and an extraction are compared with the cpu rung, in seconds: `auto` passes over a rung
    that fails for the next one, down to `cpu`, and a rung that is named stops with the tensor that
    deviates. The rung itself is part of a version, because rungs differ in the last digits.
    """
    features_variant: Annotated[str, RungOr("same")] = "same"
    """The rung that extracts the features, those of the controls too. `same` is `variant`, the rung
    of the training."""
    svm_backend: Literal["auto", "cuml", "sklearnex", "sklearn"] = "auto"
    """The library that fits the SVM. `auto` is `cuml` on a GPU where it passes a check before its
    first use (200 rows, compared with scikit-learn), else `sklearnex` where it is installed, else
    `sklearn`. `sklearnex` takes oneDAL for up to three classes and not too many rows, and otherwise
    what `sklearn` takes, which is faster there. With `cuml` predictions are computed on the GPU
    too. The library itself is part of a version.
    """
    array_library: Literal["auto", "cupy", "numpy"] = "auto"
    """The library that computes kernel ridge, nearest neighbours, the PCA of features, and the
    whitening and k-means of patches. `auto` is `cupy` on a GPU, else `numpy`. Both multiply float32
    as float32, never as TF32. The library itself is part of the versions of the stages that use it,
    because the two differ in the last digits.
    """


class Resources(Section):
    heading = "How this machine runs it", "Never part of a version"

    threads: Literal["all"] | Annotated[int, Field(ge=1, le=1024), INTEGER] = "all"
    """CPU threads of every stage; `all` is all that this process may use, and half of them where
    the images are few, or not many and no network is trained: two stages then run at a time by
    `--cores 2` or more. A training that takes longer than some seconds has all of them. It does not
    depend on `--cores`. Results are the same bytes for any number on one kind of CPU; not part of a
    version.
    """
    data_residency: Literal["auto", "device", "host"] = "auto"
    """Where a GPU rung keeps the images: `device` in GPU memory, `host` in main memory, streamed
    batch by batch. `auto` is `device` where the images take at most half of the free GPU memory.
    Results are the same bytes; not part of a version. The report of a streamed run says how much of
    the copying was hidden behind the computation.
    """
    monitor: Amount = 0
    """Print loss and accuracy of the last N steps after every N steps of training, and with
    `validation` those of the validation images at that step, which takes a forward pass of them. 0
    prints them after each epoch only. Not part of a version."""


class Commands(Section):
    heading = "Commands and lists of runs", ""

    name: Annotated[
        str, Field(max_length=200), expected("one line of at most 200 characters"), TEXT
    ] = ""
    """Name of this run on the pages; part of the report's version only."""
    tags: Annotated[list[Tag], Field(max_length=20), LISTED] = []
    """Tags of this run on the pages; part of the report's version only."""
    predict: Several[Annotated[str, PATH, expected("a folder or a file"), TEXT]] = []
    """Pictures for `snakemake results/predictions.html`, a folder, a file, or a list of them, in
    PNG, JPEG, WebP, GIF, BMP, TIFF or PNM."""
    runs: Runs = []
    """Runs beside this one, for `snakemake runs` and for the report, which shows how much each
    differs from this run on the same images. Each entry is a set of keys with other values, such as
    `{batch_size: 32}`, and perhaps a `name` or a `tag`. A list of values stands for one run with
    each, several lists for all combinations; of a key that takes a list, a list of lists does:
    `{seed: [2, 3], wta_kernels: [[11, 7], [8, 8]]}` is four runs. Several seeds are shown as mean,
    interval and count, a run by another `variant` also with the largest difference of a weight.
    Entries that are the same run are one, and one that changes nothing is this run. A run of the
    list has no curve of few labels, no map and no controls, unless `label_counts`, `feature_map` or
    `controls` are written in the entry or beside the list; a run with another `seed` alone has the
    controls. The list and a search together may be 1,000 runs.
    """
    multiplier_costs: Costs = {}
    """What a product costs with multipliers of your own, by source: `{power in mW (EvoApproxLib):
    {mul8s_1KV8.npy: 0.425, mul8s_1KVA.npy: 0.422}}`. The page of runs has a chart of
    accuracy over cost for each source, which names its axis, beside one of the published energy of
    `exact` and `fp16`.
    """
    search: Search = {}
    """A hyperparameter search, whose trials are runs with a tag beside those of `runs`: `snakemake
    runs`."""
    keep: Several[Version] = []
    """Versions that `snakemake gc` does not remove, beside those of this configuration, its lists
    and presets/: as `t0123456789a` or `train/t0123456789a`, with `*` for any characters. One that
    is not there is refused.
    """
    confirm: Flag = False
    """Let `snakemake gc` remove what it otherwise only lists."""


class Addresses(Section):
    heading = "Addresses", ""

    downloads: Annotated[str, PATH, expected("the path of a folder"), TEXT] = "results/downloads"
    """Folder where downloaded files are kept. A folder that several projects name is filled once.
    Not part of a version.
    """

    mnist_urls: FourFiles = [
        "https://ossci-datasets.s3.amazonaws.com/mnist/train-images-idx3-ubyte.gz",
        "https://ossci-datasets.s3.amazonaws.com/mnist/train-labels-idx1-ubyte.gz",
        "https://ossci-datasets.s3.amazonaws.com/mnist/t10k-images-idx3-ubyte.gz",
        "https://ossci-datasets.s3.amazonaws.com/mnist/t10k-labels-idx1-ubyte.gz",
    ]
    """Addresses of MNIST: training images, training labels, test images, test labels; or the path
    of a folder that holds the four files by their official names. Their content must have known
    checksums, so the addresses are no part of a version."""
    fashion_mnist_urls: FourFiles = [
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/train-images-idx3-ubyte.gz",
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/train-labels-idx1-ubyte.gz",
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/t10k-images-idx3-ubyte.gz",
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/t10k-labels-idx1-ubyte.gz",
    ]
    """Addresses of Fashion-MNIST, as those of MNIST, with the official checksums."""
    svhn_urls: TwoFiles = [
        "http://ufldl.stanford.edu/housenumbers/train_32x32.mat",
        "http://ufldl.stanford.edu/housenumbers/test_32x32.mat",
    ]
    """Addresses of SVHN's cropped digits, `train_32x32.mat` and `test_32x32.mat`, or the path of a
    folder that holds both; with their official checksums."""
    cifar100_urls: Annotated[list[Address], Field(min_length=1), LISTED] = [
        "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz"
    ]
    """Addresses of the CIFAR-100 archive (binary version), tried in order, with its official
    checksum: `http`, `https` and `file`, or a path, of the archive or of the folder that holds
    `cifar-100-binary.tar.gz`.
    """
    cifar10_urls: Annotated[list[Address], Field(min_length=1), LISTED] = [
        "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
    ]
    """Addresses of the CIFAR-10 archive (binary version), tried in order: `http`, `https` and
    `file`, or a path, of the archive or of the folder that holds `cifar-10-binary.tar.gz`."""
    cifar10_sha256: Sha256 = "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"
    """SHA-256 checksum of that archive, part of the version. That of another one, as `sha256sum`
    prints it, takes this."""


SECTIONS: tuple[type[Section], ...] = (
    Data,
    Network,
    TrainingKeys,
    Arithmetic,
    Patches,
    Features,
    Classifiers,
    Controls,
    Machine,
    Resources,
    Commands,
    Addresses,
)
KEYS = tuple(name for section in SECTIONS for name in section.model_fields)


class Settings(
    Data,
    Network,
    TrainingKeys,
    Arithmetic,
    Patches,
    Features,
    Classifiers,
    Controls,
    Machine,
    Resources,
    Commands,
    Addresses,
):
    """All settings. Raises pydantic.ValidationError for a value that is not of its key's type, or a
    key that does not exist.
    """

    def by_key(self) -> dict[str, Any]:
        """Key, as it is written in config.yaml, -> value."""
        return {key: getattr(self, key) for key in KEYS}


@functools.cache
def rules() -> dict[str, dict[str, Any]]:
    """The JSON schema of every key, in the order of SECTIONS."""
    properties = rule_of(Settings.model_json_schema())["properties"]
    return {key: properties[key] for key in KEYS}


def is_list(key: str) -> bool:
    """Whether a key takes a list; False for one that does not exist."""
    return key in KEYS and get_origin(Settings.model_fields[key].annotation) is list


@functools.cache
def adapter(key: str) -> TypeAdapter[Any]:
    """What reads a value of this key alone."""
    return TypeAdapter(get_type_hints(Settings, include_extras=True)[key])
