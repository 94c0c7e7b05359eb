"""Which steps convolutions on packed operands become: what is packed, by which launch, and what is
never stored.
"""

import zoo
from ladder.arithmetic.multipliers import PRECISIONS
from ladder.network import networks
from ladder.plan import plan
from rung_checks import training_plan

RUNG = "gpu_bf16"


def test_copies_are_made_of_what_is_read_again():
    """The image is packed where it is loaded, the loss's gradient where it is computed.

    Forward alone there is no flipped weight; with a frozen layer before it neither; with a stride
    it would be of no use.

    Convolutions write the copies of those that follow them, and the gradients of those before, but
    for strided ones, and through upsamplings if they have phases.
    """

    def entries(made):
        return {
            (step.layer, launch.entry)
            for step in made.steps
            for launch in step.launches
            if step.layer
            and launch.source.startswith("packed/")
            and "weight_grad" not in launch.source
        } | {name for name, buffer in made.buffers.items() if buffer.kind == "copy"}

    settings = {
        "network": zoo.WIDE,
        "rung": RUNG,
        "batch_size": 2,
        "multipliers": PRECISIONS["bfloat16"],
    }
    dataset = plan.Dataset(4, "uint8")
    trained = entries(
        plan.training_plan(plan.TrainingSettings(**settings), dataset, plan.Length(1, 1))
    )
    frozen = entries(
        plan.training_plan(
            plan.TrainingSettings(**settings, frozen=("a", "b")), dataset, plan.Length(1, 1)
        )
    )
    inferred = entries(
        plan.inference_plan(zoo.WIDE, RUNG, 2, dataset, multipliers=PRECISIONS["bfloat16"])
    )
    copies = {
        *((layer, "conv2d_copy") for layer in "cde"),
        ("e_up", "conv2d"),
        ("b", "conv2d"),
        ("c", "round_image"),
        *(f"{layer}.weight.packed" for layer in "abcdef"),
    }
    alone = {
        ("a", "conv2d"),
        ("b", "round_image"),
        ("a", "round_gradient"),
        ("b", "round_gradient"),
        ("c", "conv2d"),
        "c.weight.flipped",
    }
    assert inferred == copies | {("a", "conv2d_pool")}
    assert frozen == inferred | {
        *((layer, "conv2d_gradient") for layer in ("d", "e", "e_up")),
        *(f"{layer}.weight.flipped" for layer in "def"),
    }
    assert trained == frozen - {("a", "conv2d_pool")} | alone


def test_what_only_a_convolution_on_copies_reads_is_written_for_it_alone():
    made = training_plan(RUNG, zoo.DEEP, batch=2)
    assert [
        (step.layer, launch.entry)
        for step in made.steps
        for launch in step.launches
        if launch.source.startswith("packed/") and step.layer and "weight_grad" not in launch.source
    ] == [
        ("a", "conv2d_copy"),
        ("b", "conv2d_pool"),
        ("c", "conv2d_copy"),
        ("c_up", "conv2d"),
        ("c_up", "conv2d_gradient"),
        ("c", "conv2d_gradient_pool"),
        ("b", "conv2d_gradient"),
    ]
    unstored = {"a_relu", "b_relu", "b_pool", "c_relu", "c_up"}
    assert not (unstored | {f"{name}.gradient" for name in unstored}) & made.buffers.keys()


def test_the_autoencoders_convolutions_have_copies():
    made = training_plan(RUNG, networks.build("autoencoder"))
    layers = {step.layer for step in made.steps if step.operation.startswith("rounded_conv2d_")}
    assert layers == {"enc1", "enc2", "dec1"}
    assert {
        step.layer for step in made.steps if step.operation.startswith("rounded_phase_conv2d_")
    } == {"dec1_up", "dec2_up"}
