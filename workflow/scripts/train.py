"""Stage `train`: train the network, with a checkpoint after each epoch.

params: network with its options, image, classes where it classifies, variant, batch_size, epochs or steps, optimizer,
learning_rate, momentum, weight_decay, gradient_clip, gradient_scale, schedule, schedule_step_epochs, schedule_step_factor,
warmup_steps, augment_flip, augment_crop, seed, multiplier, multiplier_in, loss_scale (those that the others make meaningless
are absent).
inputs: normalized, initial, data where the network classifies.  options: data_residency, monitor (log the loss whenever so many
steps are done, 0 for never), multiplier: what the parameter stands for, a name or the file of a table.
Writes the weights, weights.bin or weights.safetensors; history.safetensors: float64 `losses` by step and, where the network
classifies, `hits`: how many of the batch's images it named right; else reconstructions.npy: uint8 (16, H, W, C), the first
test (or held-out) images as the network gives them back.
Killed and started again, it goes on after the last checkpoint and ends in the same bytes.
"""

import numpy as np

from ladder import multipliers, networks, plan, stage, training, weights
from ladder.inference import Inference
from ladder.normalization import Statistics
from ladder.optimizers import Optimizer
from ladder.progress import duration, log

SAMPLES = 16


def make(work, inputs, params, options):
    network = networks.from_params(params)
    statistics = Statistics.load(inputs["normalized"])
    initial = weights.load(inputs["initial"].path(weights.file_name(network)), network)
    images = inputs["normalized"].array("train.npy")
    labels = inputs["data"].array("train_labels.npy") if network.classifies else None

    products = multipliers.products(params, options["multiplier"])
    run = training.Training(settings(network, params, products), images, statistics.scale, statistics.offset, initial,
                            work.threads, options["data_residency"], labels)
    train(run, work, int(options["monitor"]))
    with work.file(weights.file_name(network)) as path:
        weights.save(path, network, run.values)
    work.write_tensors("history.safetensors", run.history)
    if not network.classifies:
        samples = inputs["normalized"].array("test.npy")[:SAMPLES]
        work.write_array("reconstructions.npy", reconstruct(run, samples, statistics, work.threads))
    work.metrics = metrics(run, initial)


def settings(network, params, products):
    schedule = {"schedule": params["schedule"], "warmup_steps": params["warmup_steps"]}
    if params["schedule"] == "step":
        schedule |= {"step_epochs": params["schedule_step_epochs"], "step_factor": params["schedule_step_factor"]}
    return training.Settings(
        network, params["variant"], params["batch_size"], params.get("epochs"),
        Optimizer(params["optimizer"], params.get("momentum", 0.0), params["weight_decay"], params["gradient_clip"]),
        params["learning_rate"], schedule, params.get("gradient_scale", "mean"), params["seed"], params.get("steps"),
        plan.Augmentation(params["augment_flip"], params["augment_crop"]), products, params.get("loss_scale", 1))


def train(run, work, monitor):
    checkpoint = work.folder / "checkpoint.safetensors"
    if run.restore(checkpoint):
        work.seconds_before = run.seconds
        log.info("going on after step %d of %d, in epoch %d of %d", run.step, run.length.steps, run.epoch + 1, run.epochs)
    while not run.done:
        seconds, images = run.seconds, run.images_seen
        run.run_epoch(checkpoint, monitor)
        run.save(checkpoint)
        seconds, images = run.seconds - seconds, run.images_seen - images
        accuracy = f"  accuracy {run.accuracies[-1]:.2%}" if run.accuracies else ""
        log.info("epoch %d/%d  loss %.5f%s  %s  %.0f images/s", run.epoch, run.epochs, run.losses[-1], accuracy,
                 duration(seconds), images / seconds)


def reconstruct(run, samples, statistics, threads):
    decoder = Inference(run.settings.network, run.settings.variant, run.values, statistics.scale, statistics.offset,
                        threads, products=multipliers.Products(forward=run.settings.products.forward))
    return np.concatenate([statistics.to_pixels(values) for _, values in decoder.batches(samples)])


def metrics(run, initial):
    network = run.settings.network
    return {
        "loss": run.losses,
        "accuracy": run.accuracies,
        "layer_movement": weights.movement(initial, run.values),
        "images_per_second": run.images_seen / run.seconds,
        "steps": run.length.steps,
        "epochs": run.epochs,
        "parameters": network.parameter_count,
        "seconds_by_operation": run.executor.seconds,
        "seconds_from_samples": not run.executor.measures_every_step,
        "memory": run.memory(),
        "network": [{"layer": layer.name, "kind": layer.kind, "inputs": list(layer.inputs), "output": list(layer.output_shape),
                     "macs": layer.macs,
                     "parameters": sum(int(np.prod(shape)) for shape in layer.parameters.values())}
                    for layer in network.layers],
        "kernels": [{"layer": " + ".join(layers), "kernel": operation} for layers, operation in run.plan.kernels],
        "device": run.executor.device(),
    }


if __name__ == "__main__":
    stage.run(make)
