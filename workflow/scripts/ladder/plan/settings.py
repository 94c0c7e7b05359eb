"""What a plan is made for: the settings of a training run, its images and its length."""

import dataclasses

from ladder.arithmetic.multipliers import EXACT, PRECISIONS, ByDirection
from ladder.network.networks import Network
from ladder.network.optimizers import Optimizer, Schedule

LOSS_SCALE = 1024  # also the default of the key loss_scale


@dataclasses.dataclass(frozen=True)
class Dataset:
    """The images that a plan draws batches from: their number and their stored dtype."""

    rows: int
    dtype: str


@dataclasses.dataclass(frozen=True)
class Length:
    """Length of a training run in steps."""

    steps: int
    steps_per_epoch: int


@dataclasses.dataclass(frozen=True)
class Augmentation:
    """Random changes of training images: horizontal flips, then shifts, rotations, and a factor for
    each colour channel.

    Shifts are by up to `crop` pixels in each axis, rotations by up to `rotate` degrees about the
    centre, both padded with zeros; factors are between 1 - colour and 1 + colour.
    """

    flip: bool = False
    crop: int = 0
    rotate: float = 0.0
    colour: float = 0.0

    def __bool__(self) -> bool:
        return self.flip or self.crop > 0 or self.jitters

    @property
    def jitters(self) -> bool:
        """Whether images are rotated or coloured: a pixel is then computed from several."""
        return self.rotate > 0 or self.colour > 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingSettings:
    """One training run of `steps` steps or, if that is None, of `epochs` epochs.

    schedule        keyword arguments of optimizers.learning_rates
    gradient_scale  'mean' divides the gradient of the summed squared error by all elements of the
                    batch, 'batch' by its images only (always the case for the cross-entropy)
    seed            of the random numbers of a step and of the shuffling
    multipliers     of convolutions and dense layers
    loss_scale      factor on all gradients, divided out before the updates; exact if it is a power
                    of two and nothing overflows (None: LOSS_SCALE in precision float16, else 1)
    repeats         of exponents.fitted
    frozen          names of layers whose parameters are not trained, and get no gradient

    multiprocessors: the number of the GPU's for which tiles are chosen (None: of this machine's
    GPU); it changes no byte.
    """

    network: Network
    rung: str
    batch_size: int
    optimizer: Optimizer = Optimizer("sgd")
    learning_rate: float = 1e-3
    schedule: Schedule = dataclasses.field(default_factory=Schedule)
    epochs: int | None = None
    steps: int | None = None
    gradient_scale: str = "mean"
    augmentation: Augmentation = Augmentation()
    seed: int = 0
    multipliers: ByDirection = EXACT
    loss_scale: float | None = None
    repeats: int = 0
    frozen: tuple[str, ...] = ()
    multiprocessors: int | None = None

    def length(self, images: int) -> Length:
        """The Length of the run on this number of images; the last batch of an epoch may be
        smaller.
        """
        per_epoch = -(-images // self.batch_size)
        return Length(
            (self.epochs or 0) * per_epoch if self.steps is None else self.steps, per_epoch
        )

    @property
    def scale(self) -> float:
        """loss_scale, or the value that None stands for."""
        default = LOSS_SCALE if self.multipliers == PRECISIONS["float16"] else 1.0
        return default if self.loss_scale is None else self.loss_scale
