"""Stage `patches`: fit layers to patches of the training images, one after another, without labels
and without gradients.

params: network with its options, image, variant, patches_atoms, patches_samples, patches_whitening,
patches_iterations (absent for random filters), array_library (of whitening and k-means), seed.
inputs: normalized, initial.  options: data_residency.
Writes the weights, weights.bin or weights.safetensors, with the initial ones for layers that are
not fitted, and atoms.npy: float32 (filters, kernel, kernel, channels), the filters of layer 1 as
patches.
"""

from ladder.arithmetic import arrays
from ladder.data.normalization import Statistics
from ladder.features import patches
from ladder.machine import runtime
from ladder.network import networks, weights
from ladder.plan import plan
from ladder.stage import stage_script
from ladder.training.inference import Inference

ROWS = 500  # images per batch of the first layer


def make(work, inputs, params, options):
    network = networks.from_params(params)
    statistics = Statistics.load(inputs["normalized"])
    images = inputs["normalized"].array("train.npy")
    initial = weights.of_artifact(inputs["initial"], network)
    settings = patches.PatchSettings(
        params["patches_atoms"],
        tuple(params["patches_samples"]),
        params.get("patches_iterations", 0),
        tuple(params["patches_whitening"]),
        params["seed"],
    )
    library = arrays.library(params["array_library"], work.threads)
    fitter = patches.PatchFitter(library)
    values, facts, pictures, seconds = dict(initial), [], [], {}

    for number, spec in enumerate(network.fits):
        layer = network.layer(spec.layer)
        source = layer.inputs[0]
        encoder = Inference(
            network,
            params["variant"],
            values,
            statistics,
            work.threads,
            None if source == networks.INPUT else source,
            options["data_residency"],
        )
        outputs = LayerOutputs(encoder, statistics)
        with runtime.thread_pools().limit(limits=1):
            sampled = patches.sample(
                layer, images, settings.of_layer(number)[0], outputs.batches, settings.seed, number
            )
            fitted = patches.fit(layer, spec, sampled, settings, number, fitter)
        patches.log_facts(fitted.facts)
        values[f"{layer.name}.weight"] = fitted.weight
        if fitted.bias is not None:
            values[f"{layer.name}.bias"] = fitted.bias
        facts.append(fitted.facts)
        pictures.append(fitted.pictures)
        for name, spent in {
            **outputs.seconds,
            f"fit of {layer.name}": fitted.facts["seconds"],
        }.items():
            seconds[name] = seconds.get(name, 0.0) + spent
    with work.file(weights.file_name(network)) as path:
        weights.save(path, network, values)
    work.write_array("atoms.npy", pictures[0])
    work.metrics = metrics(network, params["variant"], initial, values) | {
        "layers": facts,
        "seconds_by_operation": seconds,
        "device": outputs.device,
        **library.facts(),
    }


class LayerOutputs:
    """The output of a layer, computed by an Inference; of one that stops before the first layer,
    the network's input.

    seconds: category -> time of the previous layers; device: description of the device.
    """

    def __init__(self, encoder, statistics):
        self.encoder, self.statistics, self.seconds = encoder, statistics, {}
        self.device = self.encoder.executor.device()

    def batches(self, images):
        """Yield (start, float32 (n, H, W, C)) for stored images (N, H, W, C)."""
        if self.encoder.until is None:
            for start in range(0, len(images), ROWS):
                yield start, self.statistics.apply(images[start : start + ROWS])
            return
        yield from self.encoder.batches(images)
        self.seconds = self.encoder.executor.seconds


def metrics(network, rung, before, after):
    """Metrics of the network for the report."""
    return {
        "parameters": network.parameter_count,
        "layer_movement": weights.movement(before, after),
        "network": network.table,
        "kernels": plan.inference_plan(network, rung, 1, plan.Dataset(1, "uint8")).kernel_table,
    }


if __name__ == "__main__":
    stage_script.run(make)
