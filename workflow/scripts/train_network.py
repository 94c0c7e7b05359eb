"""Stage `train`: train the network, with a checkpoint after each epoch.

params: network with its options, image, classes if it classifies, training, variant, batch_size, epochs or steps,
decoder_epochs (for a fitted encoder: epochs that train only the decoder, before or instead of training all layers), optimizer,
learning_rate, momentum, weight_decay, gradient_clip, gradient_scale, schedule, schedule_step_epochs, schedule_step_factor,
warmup_steps, augment_flip, augment_crop, seed, multiplier, multiplier_in, loss_scale (absent if they have no effect).
inputs: normalized, initial or patches, data if the network classifies.
options: data_residency, monitor (steps between log lines with the loss, 0 for none), multiplier: the name or the file of the
table of the parameter `multiplier`.
Writes the weights, weights.bin or weights.safetensors; history.safetensors: float64 `losses` of each step and, if the network
classifies, `hits`: correct predictions in the batch; else reconstructions.npy: uint8 (16, H, W, C) of the first test (or
held-out) images.
After an interruption it resumes from the last checkpoint, with bit-identical results.
"""

import dataclasses

import numpy as np

from ladder.arithmetic import multipliers
from ladder.data.normalization import Statistics
from ladder.network import networks, weights
from ladder.network.optimizers import Optimizer
from ladder.progress import duration, log
from ladder.training import plan, training
from ladder.training.inference import Inference
from ladder.workflow import stage_script

SAMPLES = 16


def make(work, inputs, params, options):
    network = networks.from_params(params)
    statistics = Statistics.load(inputs["normalized"])
    initial = weights.of_artifact(inputs.get("patches", inputs.get("initial")), network)
    images = inputs["normalized"].array("train.npy")
    labels = inputs["data"].array("train_labels.npy") if network.classifies else None

    values, parts = initial, []
    for name, part in phases(network, params, options["multiplier"]):
        run = training.Training(part, images, statistics, values, work.threads, options["data_residency"], labels)
        train(run, work, work.folder / f"checkpoint{name}.safetensors", int(options["monitor"]))
        values, measured = run.values, metrics(run)
        parts.append((run.history, measured))
    with work.file(weights.file_name(network)) as path:
        weights.save(path, network, values)
    work.write_tensors("history.safetensors", {name: np.concatenate([history[name] for history, _ in parts])
                                               for name in run.history})
    if not network.classifies:
        samples = inputs["normalized"].array("test.npy")[:SAMPLES]
        work.write_array("reconstructions.npy", reconstruct(run, samples, statistics, work.threads))
    work.metrics = joined([measured for _, measured in parts]) | {
        "layer_movement": weights.movement(initial, values), "parameters": network.parameter_count, "network": network.table}


def phases(network, params, multiplier):
    """(name, plan.Settings) of each part of the training: only the decoder of a fitted encoder, then all layers."""
    whole = settings(network, params, multiplier)
    if params["training"] == "gradient":
        return [("", whole)]
    decoder = dataclasses.replace(whole, epochs=params["decoder_epochs"], steps=None, frozen=network.encoder)
    return [("_decoder", decoder)] + ([("", whole)] if params["training"] == "patches_then_gradient" else [])


def settings(network, params, multiplier):
    schedule = {"schedule": params["schedule"], "warmup_steps": params["warmup_steps"]}
    if params["schedule"] == "step":
        schedule |= {"step_epochs": params["schedule_step_epochs"], "step_factor": params["schedule_step_factor"]}
    return plan.Settings(
        network=network,
        optimizer=Optimizer(params["optimizer"], params.get("momentum", 0.0), params["weight_decay"], params["gradient_clip"]),
        schedule=schedule,
        augmentation=plan.Augmentation(params["augment_flip"], params["augment_crop"]),
        multipliers=multipliers.from_params(params, multiplier),
        **{key: params[key] for key in ("variant", "batch_size", "learning_rate", "seed")},
        **{key: params[key] for key in ("epochs", "steps", "gradient_scale", "loss_scale") if key in params})


def train(run, work, checkpoint, monitor):
    if run.restore(checkpoint):
        work.seconds_before += run.seconds
        log.info("resuming after step %d of %d, in epoch %d of %d", run.step, run.length.steps, run.epoch + 1, run.epochs)
    while not run.done:
        seconds, images = run.seconds, run.images_seen
        run.run_epoch(checkpoint, monitor)
        run.save(checkpoint)
        seconds, images = run.seconds - seconds, run.images_seen - images
        accuracy = f"  accuracy {run.accuracies[-1]:.2%}" if run.accuracies else ""
        log.info("epoch %d/%d  loss %.5f%s  %s  %.0f images/s", run.epoch, run.epochs, run.losses[-1], accuracy,
                 duration(seconds), images / seconds)


def reconstruct(run, samples, statistics, threads):
    forward = multipliers.ByDirection(forward=run.settings.multipliers.forward)
    decoder = Inference(run.settings.network, run.settings.variant, run.values, statistics, threads, multipliers=forward)
    return np.concatenate([statistics.to_pixels(values) for _, values in decoder.batches(samples)])


def metrics(run):
    """The metrics of one part of the training."""
    return {
        "loss": run.losses,
        "accuracy": run.accuracies,
        "images": run.images_seen,
        "seconds": run.seconds,
        "steps": run.length.steps,
        "epochs": run.epochs,
        "frozen": list(run.settings.frozen),
        "seconds_by_operation": run.executor.seconds,
        "seconds_from_samples": not run.executor.measures_every_step,
        "memory": run.memory(),
        "kernels": run.plan.kernel_table,
        "device": run.executor.device(),
        "launching": run.executor.launching(),
    }


def joined(parts):
    """The metrics of the whole training: sums of lengths and times; memory, kernels, device and launching of the last part."""
    last, operations = parts[-1], {}
    for part in parts:
        for name, seconds in part["seconds_by_operation"].items():
            operations[name] = operations.get(name, 0.0) + seconds
    return {
        "loss": [loss for part in parts for loss in part["loss"]],
        "accuracy": last["accuracy"],
        "images_per_second": sum(part["images"] for part in parts) / sum(part["seconds"] for part in parts),
        **{name: sum(part[name] for part in parts) for name in ("steps", "epochs")},
        "parts": [{name: part[name] for name in ("steps", "epochs", "frozen")} for part in parts],
        "seconds_by_operation": operations,
        **{name: last[name] for name in ("seconds_from_samples", "memory", "kernels", "device", "launching")},
    }


if __name__ == "__main__":
    stage_script.run(make)
