"""Stage `train`: train the network, epoch by epoch, with a checkpoint after each.

params: network, variant, batch_size, epochs, optimizer, learning_rate, momentum, weight_decay, gradient_clip,
gradient_scale, schedule, schedule_step_epochs, schedule_step_factor, warmup_steps, seed (those that the others make
meaningless are absent).  inputs: normalized, initial.  options: data_residency.
Writes weights.bin and reconstructions.npy: uint8 (16, 32, 32, 3), the first test images as the network gives them back.
Killed and started again, it goes on after the last finished epoch and ends in the same bytes.
"""

import numpy as np

from ladder import networks, stage, training, weights
from ladder.inference import Inference
from ladder.normalization import Statistics
from ladder.optimizers import Optimizer
from ladder.progress import duration, log

SAMPLES = 16


def make(work, inputs, params, options):
    network = networks.build(params["network"])
    statistics = Statistics.load(inputs["normalized"])
    initial = weights.read_parameters(inputs["initial"].path("weights.bin"), network)
    images = inputs["normalized"].array("train.npy")

    run = training.Training(settings(network, params), images, statistics.scale, statistics.offset, initial, work.threads,
                            options["data_residency"])
    train(run, work)
    with work.file("weights.bin") as path:
        weights.write_weights(path, run.parameters)
    samples = inputs["normalized"].array("test.npy")[:SAMPLES]
    work.write_array("reconstructions.npy", reconstruct(run, samples, statistics, work.threads))
    work.metrics = metrics(run, initial, work.threads)


def settings(network, params):
    schedule = {"schedule": params["schedule"], "warmup_steps": params["warmup_steps"]}
    if params["schedule"] == "step":
        schedule |= {"step_epochs": params["schedule_step_epochs"], "step_factor": params["schedule_step_factor"]}
    return training.Settings(
        network, params["variant"], params["batch_size"], params["epochs"],
        Optimizer(params["optimizer"], params.get("momentum", 0.0), params["weight_decay"], params["gradient_clip"]),
        params["learning_rate"], schedule, params["gradient_scale"], params["seed"])


def train(run, work):
    checkpoint = work.folder / "checkpoint.safetensors"
    if run.restore(checkpoint):
        work.seconds_before = run.seconds
        log.info("going on after epoch %d of %d", run.epoch, run.settings.epochs)
    while run.epoch < run.settings.epochs:
        before = run.seconds
        run.run_epoch()
        run.save(checkpoint)
        seconds = run.seconds - before
        log.info("epoch %d/%d  loss %.5f  %s  %.0f images/s", run.epoch, run.settings.epochs, run.losses[-1],
                 duration(seconds), len(run.images) / seconds)


def reconstruct(run, samples, statistics, threads):
    decoder = Inference(run.settings.network, run.settings.variant, run.parameters, statistics.scale, statistics.offset,
                        threads)
    return np.concatenate([statistics.to_pixels(values) for _, values in decoder.batches(samples)])


def metrics(run, initial, threads):
    network = run.settings.network
    return {
        "loss": run.losses,
        "layer_movement": weights.movement(initial, run.parameters),
        "images_per_second": len(run.images) * run.epoch / run.seconds,
        "steps": run.length.steps,
        "parameters": network.parameter_count,
        "seconds_by_operation": run.executor.seconds,
        "seconds_from_samples": not run.executor.measures_every_step,
        "memory": run.memory(),
        "network": [{"layer": layer.name, "kind": layer.kind, "output": list(layer.output_shape), "macs": layer.macs,
                     "parameters": sum(int(np.prod(shape)) for shape in layer.parameters.values())}
                    for layer in network.layers],
        "kernels": [{"layer": " + ".join(layers), "kernel": operation} for layers, operation in run.plan.kernels],
        "device": run.executor.device(),
    }


if __name__ == "__main__":
    stage.run(make)
