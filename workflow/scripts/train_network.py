"""Stage `train`: train the network, with a checkpoint after each epoch. After an interruption it
resumes from the last checkpoint, with bit-identical results.

inputs   normalized; initial or patches; data if the network classifies
params   network with its options, image, and classes if it classifies; multiplier and multiplier_in
         or precision; the fields of parameters.TrainingParameters that have an effect
options  do not change the results:
    data_residency  where the images are: executors/create.py
    goes_on_from    folder of a shorter training whose steps are the first of this one, or ''
    monitor         steps between log lines with the loss, 0 for none
    multiplier      name or file of the table of the parameter `multiplier`
    page            the file of training/live.py

It first trains only the decoder of a fitted encoder, for decoder_epochs, before all layers or
instead of them. With a validation set (patience) the loss on it is measured after every epoch. A
training with patience > 0 stops after so many epochs without a smaller one, and keeps the weights
of the best epoch.

Files, where H, W, C is the shape of an image:
    weights.bin or weights.safetensors
    history.safetensors
        losses, hits, divergences  float64, by step; hits, the right predictions of the batch, where
                                   the network classifies; divergences in nats per image, where it
                                   draws latent values
        validation_steps           int64, by epoch: the steps made by then
        validation_losses          float64, by epoch
        validation_hits            int64, by epoch, where the network classifies
    reconstructions.npy            uint8 (16, H, W, C), of the first test (or validation) images,
                                   where the network does not classify
    samples.npy                    uint8 (32, H, W, C), decoded from samples of the prior by the
                                   seed, where the network draws latent values
    epochs.safetensors             of a training in one part, before it and after 1, 2, 4, 8, ...
                                   epochs: EPOCH.filters, float32 weights of a first convolution,
                                   and EPOCH.reconstructions, uint8 (8, H, W, C)
    state.safetensors              where a longer training can go on from this one: the optimizer's
                                   running averages, and the last weights if other ones are kept
"""

import dataclasses
import itertools
import math

import numpy as np

from ladder.arithmetic import multipliers, randomness
from ladder.data.normalization import Statistics
from ladder.machine import compiling
from ladder.network import networks, weights
from ladder.network.optimizers import warmup
from ladder.progress import duration, log
from ladder.stage import stage_script
from ladder.store import shorter
from ladder.training import live, parameters, phases, schedules, snapshots, training
from ladder.training.earlier import Earlier, state
from ladder.training.inference import Inference
from ladder.training.validation import Validation

# Damaged pictures are known only when all are read.
TOO_FEW = "batch_size {} is more than the {} training images that could be read: they are one batch"
RECONSTRUCTED, SAMPLES = 16, 32
# times the lowest loss of an epoch, from which on a loss has risen by more than noise
RISEN = 1.05
# metrics with a number for each epoch
OF_EPOCHS = "loss", "accuracy", "divergence", "seconds_by_pass"
# metrics of the last part alone
OF_THE_END = "seconds_from_samples", "memory", "kernels", "device", "launching"


def make(work, inputs, params, options):
    network = networks.from_params(params)
    given, misfits = parameters.read(parameters.TrainingParameters, params), []
    multiplied = multipliers.from_params(params, options["multiplier"])
    statistics = Statistics.load(inputs["normalized"])
    initial = weights.of_artifact(inputs.get("patches", inputs.get("initial")), network)
    images = inputs["normalized"].array("train.npy")
    labels = inputs["data"].array("train_labels.npy") if network.classifies else None

    if given.batch_size > len(images):
        misfits = [TOO_FEW.format(given.batch_size, len(images))]
        given = dataclasses.replace(given, batch_size=len(images))
    common = statistics, work.threads, options["data_residency"]
    phased = phases.parts(network, given, multiplied)
    misfits += schedules.misfits(given, phased, len(images))
    for line in misfits:
        log.info("%s", line)

    earlier = Earlier.find(options.get("goes_on_from"), network)
    values, parts = initial, earlier.whole_parts if earlier else []  # parts: [(history, metrics)]
    with live.Page(options["page"], f"{network.name}, {work.folder.name}") as page:
        for name, part in phased[len(parts) :]:
            validation = validation_in(part, inputs, given, *common)
            checkpoint = work.folder / f"checkpoint{name}.safetensors"
            with compiling.shown():
                run = training.Training(
                    part, images, statistics, values, *common[1:], labels, validation
                )
                begin(run, work, checkpoint, earlier)
                if not run.done:
                    run.prepare()
            take_snapshots = snapshots_of(part, inputs, given, statistics, work.threads)
            train(run, checkpoint, int(options["monitor"]), (take_snapshots, page))
            values = run.kept
            parts.append(
                (history(run, sum(measured["steps"] for _, measured in parts)), metrics(run))
            )
    with work.file(weights.file_name(network)) as path:
        weights.save(path, network, values)
    work.write_tensors(
        "history.safetensors",
        {name: np.concatenate([numbers[name] for numbers, _ in parts]) for name in parts[0][0]},
    )
    if run.snapshots:
        work.write_tensors(snapshots.FILE, run.snapshots)
    ends_with_an_epoch = run.step % run.length.steps_per_epoch == 0
    if shorter.is_kept(
        given.schedule,
        given.patience,
        ends_with_an_epoch,
        warmup(run.length, given.warmup_steps) == given.warmup_steps,
    ):
        work.write_tensors(shorter.STATE, state(run))
    work.metrics = joined([measured for _, measured in parts])
    if not network.classifies:
        images = inputs["normalized"].array("test.npy")
        work.write_array(
            "reconstructions.npy",
            reconstruct(part, values, images[:RECONSTRUCTED], statistics, work.threads),
        )
        work.metrics["reconstruction_loss"] = Validation(part, images, *common).measure(values)[0]
    if decoder := networks.decoder(network):
        work.write_array("samples.npy", sample(part, decoder, values, statistics, work.threads))
    work.metrics |= {
        "misfits": misfits,
        "layer_movement": weights.movement(initial, values),
        "parameters": network.parameter_count,
        "network": network.table,
    }


def validation_in(settings, inputs, given, *common):
    """The Validation of a training, None without one; common: statistics, threads and
    data_residency.
    """
    if given.patience is None:
        return None
    labels = (
        np.asarray(inputs["data"].array("test_labels.npy")) if settings.network.classifies else None
    )
    return Validation(
        settings, inputs["normalized"].array("test.npy"), *common, labels, given.patience
    )


def begin(run, work, checkpoint, earlier):
    """Continue from a checkpoint or else after an earlier training (Earlier or None), if there is
    one.
    """
    if run.restore(checkpoint):
        log.info(
            "resuming after step %d of %d, in epoch %d of %d",
            run.step,
            run.length.steps,
            run.epoch + 1,
            run.epochs,
        )
    elif earlier:
        earlier.continue_in(run)
        log.info(
            "going on from %s after step %d of %d, in epoch %d of %d",
            earlier.version,
            run.step,
            run.length.steps,
            run.epoch + 1,
            run.epochs,
        )
    if earlier:
        work.notes |= {"goes_on_from": earlier.version, "after_step": earlier.steps}
        work.seconds_before += sum(part["seconds"] for part in earlier.parts[:-1])
    work.seconds_before += run.seconds


def snapshots_of(settings, inputs, given, statistics, threads):
    """A function of a Training that takes its snapshots; of one with parts nothing is taken."""
    if given.training != "gradient":
        return lambda run: None
    images = inputs["normalized"].array("test.npy")[: snapshots.IMAGES]
    rebuild = (
        None
        if settings.network.classifies
        else lambda values: reconstruct(settings, values, images, statistics, threads)
    )
    return lambda run: snapshots.take(run, rebuild)


def train(run, checkpoint, monitor, callbacks):
    """Train to the end; callbacks: functions of the run, called before the first epoch and after
    each.
    """
    for callback in callbacks:
        callback(run)
    while not run.done:
        seconds, images = run.seconds, run.images_seen
        run.run_epoch(checkpoint, monitor)
        for callback in callbacks:
            callback(run)
        run.save(checkpoint)
        seconds, images = run.seconds - seconds, run.images_seen - images
        log.info(
            "epoch %d/%d%s%s%s  %s  %.0f images/s",
            run.epoch,
            run.epochs,
            scores("", run.losses, run.accuracies),
            scores("validation ", run.validation.losses, run.validation.accuracies)
            if run.validation
            else "",
            f"  KL divergence {run.divergences[-1]:.1f}" if run.divergences else "",
            duration(seconds),
            images / seconds,
        )
        if risen(run.losses):
            log.warning(
                "train %s: the loss has risen from %.5g to %.5g in epoch %d; a learning_rate below %g may be needed",
                checkpoint.parent.name,
                min(run.losses),
                run.losses[-1],
                run.epoch,
                run.settings.learning_rate,
            )
    if run.epoch < run.epochs:
        log.info(
            "stopped after epoch %d of %d: the loss on the validation images has not fallen since epoch %d, whose weights "
            "are kept",
            run.epoch,
            run.epochs,
            run.validation.best_epoch,
        )


def risen(losses):
    """Whether the last of the losses of epochs is the first one that is more than RISEN times as
    large as one before it.
    """
    rises = (
        loss > RISEN * lowest
        for loss, lowest in zip(losses, itertools.accumulate(losses, min), strict=True)
    )
    return next((epoch for epoch, is_rise in enumerate(rises, 1) if is_rise), None) == len(losses)


def scores(kind, losses, accuracies):
    """The last loss, and the last accuracy if there is one, in words of the log."""
    return f"  {kind}loss {losses[-1]:.5f}" + (
        f"  accuracy {accuracies[-1]:.2%}" if accuracies else ""
    )


def reconstruct(settings, values, images, statistics, threads):
    return pictures(settings, values, images, statistics, statistics, threads)


def sample(settings, decoder, values, statistics, threads):
    """Pictures decoded from samples of the prior, a standard normal distribution."""
    shape = decoder.input_shape
    latent = randomness.normal(
        settings.seed, randomness.PRIOR, 0, 0, SAMPLES * math.prod(shape)
    ).reshape(SAMPLES, *shape)
    unchanged = Statistics(np.ones(shape[2], np.float32), np.zeros(shape[2], np.float32))
    decoding = dataclasses.replace(settings, network=decoder)
    return pictures(decoding, values, latent, unchanged, statistics, threads)


def pictures(settings, values, inputs, of_inputs, of_outputs, threads):
    """The network's outputs as pictures uint8 (N, H, W, C); of_inputs, of_outputs: the Statistics
    of both.
    """
    forward = multipliers.ByDirection(forward=settings.multipliers.forward)
    inference = Inference(
        settings.network, settings.rung, values, of_inputs, threads, multipliers=forward
    )
    return np.concatenate(
        [of_outputs.to_pixels(outputs) for _, outputs in inference.batches(inputs)]
    )


def history(run, before):
    """Name -> numbers by step and, with a validation set, by epoch of a part of the training, which
    began at step `before`.
    """
    numbers = {name: values[: run.step] for name, values in run.history.items()}
    if run.validation:
        numbers |= {
            "validation_steps": before + np.array(run.validation.steps),
            "validation_losses": np.array(run.validation.losses),
        }
    if run.validation and run.validation.hits:
        numbers["validation_hits"] = np.array(run.validation.hits)
    return numbers


def metrics(run):
    """The metrics of one part of the training."""
    return {
        "loss": run.losses,
        "accuracy": run.accuracies,
        "divergence": run.divergences,
        "images": run.images_seen,
        "seconds": run.seconds,
        "steps": run.step,
        "epochs": run.epoch,
        "epochs_at_most": run.epochs,
        "validation_curve": validation_metrics(run.validation),
        "frozen": list(run.settings.frozen),
        "seconds_by_operation": run.executor.seconds,
        "seconds_by_pass": run.seconds_by_pass,
        "seconds_from_samples": not run.executor.measures_every_step,
        "memory": run.memory(),
        "kernels": run.plan.kernel_table,
        "device": run.executor.device(),
        "launching": run.executor.launching(),
    }


def validation_metrics(validation):
    return validation and {
        "loss": validation.losses,
        "accuracy": validation.accuracies,
        "best_epoch": validation.best_epoch,
        "seconds": validation.seconds,
    }


def joined(parts):
    """The metrics of the whole training: sums of lengths and times; memory, kernels, device and
    launching of the last part.
    """
    last, operations = parts[-1], {}
    for part in parts:
        for name, seconds in part["seconds_by_operation"].items():
            operations[name] = operations.get(name, 0.0) + seconds
    return {
        **{
            name: last[name] and [value for part in parts for value in part[name]]
            for name in OF_EPOCHS
        },
        "images_per_second": sum(part["images"] for part in parts)
        / sum(part["seconds"] for part in parts),
        **{
            name: sum(part[name] for part in parts)
            for name in ("steps", "epochs", "epochs_at_most")
        },
        "parts": [
            {name: value for name, value in part.items() if name not in OF_THE_END}
            for part in parts
        ],
        "validation_curve": last["validation_curve"] and joined_validation(parts),
        "seconds_by_operation": operations,
        **{name: last[name] for name in OF_THE_END},
    }


def joined_validation(parts):
    """Losses and accuracies of all epochs, the best epoch of the last part, and the seconds of
    measuring.
    """
    measured = [part["validation_curve"] for part in parts]
    by_epoch = ("loss", "accuracy")
    return {
        **{
            name: measured[-1][name] and [value for part in measured for value in part[name]]
            for name in by_epoch
        },
        "best_epoch": sum(part["epochs"] for part in parts[:-1]) + measured[-1]["best_epoch"],
        "seconds": sum(part["seconds"] for part in measured),
    }


if __name__ == "__main__":
    stage_script.run(make)
