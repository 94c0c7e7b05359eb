"""Print the steps, kernels and buffers of the active run's training step; by the rule `explain`.

    explain_step.py --config-file logs/explain.json

A run that trains nothing has a forward pass in its place. Plans are data: no GPU is needed for
those of a GPU's rung.
"""

import json
import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))

from ladder.arithmetic import multipliers
from ladder.plan import plan
from ladder.stage import command
from ladder.training import parameters, phases
from ladder.verify import explain
from ladder.workflow import chains, runs
from ladder.workflow import config as configuration


def main():
    parser = command.parser(__doc__, of_configuration=True)
    raw = json.loads(parser.parse_args().config_file.read_text("utf-8"))
    print("\n\n".join(map(explain.text, plans_of(runs.resolve(configuration.load(raw))))))


def plans_of(run):
    """The Plan of each part of a run's training, in order; without a training that of a forward
    pass.
    """
    own, train = run.settings, chains.chain(run).get("train")
    dataset = plan.Dataset(
        run.training_images, "float32" if own.normalization == "zca" else "uint8"
    )
    if not train:
        return [plan.inference_plan(run.network, own.variant, own.batch_size, dataset)]
    parts = [
        part
        for _, part in phases.parts(
            run.network,
            parameters.read(parameters.TrainingParameters, train.spec["params"]),
            multipliers.from_params(train.spec["params"], own.multiplier),
        )
    ]
    return [plan.training_plan(part, dataset, part.length(dataset.rows)) for part in parts]


if __name__ == "__main__":
    command.run(main)
