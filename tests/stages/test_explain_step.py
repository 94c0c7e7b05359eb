"""What `snakemake explain` prints for a run: the plans that its training would run."""

import planned
from ladder.rungs import catalog
from tools import explain_step


def test_a_rung_of_a_gpu_is_explained_on_any_machine(monkeypatch):
    monkeypatch.setattr(catalog, "unavailable", lambda rung: "no GPU")
    (made,) = explain_step.plans_of(
        planned.run(variant="gpu_opt_v2", batch_size=48, augment_crop=2)
    )
    assert (made.rung, made.batch) == ("gpu_opt_v2", 48) and made.launches
    assert "load_augmented_batch" in [step.operation for step in made.steps]


def test_the_plans_are_those_of_each_part_of_the_training():
    parts = explain_step.plans_of(
        planned.run(network="patch_net", patch_net_filters=[6, 5, 4, 3], training="patches")
    )
    assert [[step.pass_ for step in made.steps].count("backward") for made in parts] == [0]
    decoder, whole = explain_step.plans_of(planned.run(training="patches_then_gradient"))
    assert len(decoder.steps) < len(whole.steps) and decoder.network == whole.network
