"""Write the ladder's table in kernels/README.md, between its markers, from the plans and from benchmarks/*.json.

    python benchmarks/table.py [--check]

Predictions come from the plan (roofline.py), measured columns from the newest record of gpu.py; without one, cells say "not
measured". --check writes nothing and exits with 1 if the table is out of date.
"""

import argparse
import json
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "workflow/scripts"))

import roofline  # noqa: E402
from ladder.arithmetic.multipliers import MULTIPLIERS  # noqa: E402
from ladder.network import networks, optimizers  # noqa: E402
from ladder.rungs import variants  # noqa: E402
from ladder.training import plan  # noqa: E402

README = HERE.parent / "kernels/README.md"
BEGIN, END = "<!-- table: made by benchmarks/table.py -->", "<!-- end of table -->"
NETWORK, BATCH, IMAGES = "autoencoder", 64, 50_000
HEAD = ("rung", "what it adds", "launches", "GFLOP", "MB", "FLOP/byte", "bound by", "predicted us", "median us (spread)",
        "MHz", "TFLOP/s", "% of ceiling", "% of cuDNN", "x rung below", "error / tolerance")
OTHERS_HEAD = ("network", "batch", "rung", "launches", "GFLOP", "median us (spread)", "TFLOP/s", "s/epoch", "% of cuDNN",
               "error / tolerance")
MULTIPLIED_HEAD = ("multiplier", "rung", "ResNet-18, 32 filters, batch 128: median us (spread)", "x the fastest exact rung")
NOT_MEASURED = "not measured"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="only say whether the table is up to date")
    arguments = parser.parse_args()
    text = README.read_text()
    wanted = with_table(text, table(newest_record(HERE)))
    if arguments.check:
        sys.exit(0 if text == wanted else "kernels/README.md is out of date; run: python benchmarks/table.py")
    README.write_text(wanted)


def with_table(text, made):
    """`text` with `made` between the markers; raises ValueError without markers."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"there are no lines {BEGIN} and {END}")
    return f"{before}{BEGIN}\n{made}{END}{after}"


def newest_record(folder):
    """The newest record of gpu.py in `folder`, {} without one."""
    records = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    records = [record for record in records if record.get("kind") == "gpu"]
    return max(records, key=lambda record: record["made"], default={})


def table(record):
    """The table in Markdown, a note on the measurement, and the tables of other networks and multipliers in the record."""
    rows = [HEAD, tuple("---" for _ in HEAD)]
    below = None
    for variant in gpu_rungs():
        measured = measurement(record, variant)
        rows.append(row(variant, step_plan(variant, BATCH), measured, below, record))
        below = measured
    return "\n".join([*markdown(rows), "", note(record), "", *others(record), *multiplied(record)])


def markdown(rows):
    return [f"| {' | '.join(cells)} |" for cells in rows]


def others(record):
    """Lines of the table of other networks than the autoencoder, [] if the record has none."""
    rows = [OTHERS_HEAD, tuple("---" for _ in OTHERS_HEAD)]
    for name, section in record.get("networks", {}).items():
        cudnn = eager(section, section["batch"])
        for one in sorted(section.get("steps", ()), key=lambda one: gpu_rungs().index(one["variant"])):
            rows.append((name, str(one["batch"]), one["variant"], str(one["launches"]), f"{one['flop'] / 1e9:.1f}",
                         spread(one), f"{one['tflop_per_second']:.1f}", f"{one['scaled_epoch_seconds']:.2f}",
                         share(cudnn, one), deviations(section, one["variant"])))
    return [*markdown(rows), ""] if len(rows) > 2 else []


def multiplied(record):
    """Lines of the table of one network with every multiplier, [] if the record has none."""
    rows, found = [MULTIPLIED_HEAD, tuple("---" for _ in MULTIPLIED_HEAD)], record.get("multipliers", [])
    exact = min((one["median_us"] for one in found if one["multiplier"] == "exact"), default=None)
    for one in sorted(found, key=lambda one: (list(MULTIPLIERS).index(one["multiplier"]), gpu_rungs().index(one["variant"]))):
        ratio = f"{one['median_us'] / exact:.2f}" if exact else NOT_MEASURED
        rows.append((one["multiplier"], one["variant"], spread(one), ratio))
    return [*markdown(rows), ""] if found else []


def spread(measured):
    return f"{measured['median_us']:.0f} ({measured['low_us']:.0f}-{measured['high_us']:.0f})"


def eager(section, batch):
    """PyTorch's row for a float32 step, None if it was not measured."""
    return next((one for one in section.get("torch", ()) if one["name"] == "eager fp32" and one["batch"] == batch), None)


def share(cudnn, measured):
    return f"{100 * cudnn['median_us'] / measured['median_us']:.0f}" if cudnn else NOT_MEASURED


def deviations(section, variant):
    parity = section.get("parity", {}).get(variant, {}).get("parity")
    return ", ".join(f"{one['largest']:.1e} / {one['tolerance']:.0e}" for one in parity.values()) if parity else NOT_MEASURED


def gpu_rungs():
    return [name for name, variant in variants.VARIANTS.items() if variant.executor == "cuda"]


def step_plan(variant, batch):
    """One training step with Adam."""
    settings = plan.Settings(network=networks.build(NETWORK), variant=variant, batch_size=batch,
                             optimizer=optimizers.Optimizer("adam"))
    return plan.training_plan(settings, plan.Dataset(IMAGES, "uint8"), plan.Length(1, 1))


def row(variant, made, measured, below, record):
    launches, moved = sum(len(step.launches) for step in made.steps), roofline.plan_bytes(made)
    cells = (variant, variants.VARIANTS[variant].technique, str(launches), f"{made.flop / 1e9:.1f}", f"{moved / 1e6:.0f}",
             f"{made.flop / moved:.0f}", roofline.bound_by(made, roofline.H200),
             f"{1e6 * roofline.plan_seconds(made, roofline.H200):.0f}")
    return cells + (measured_cells(variant, made, measured, below, record) if measured else (NOT_MEASURED,) * 7)


def measurement(record, variant):
    """The row of record["steps"] for a step of BATCH images, None if it was not measured."""
    return next((one for one in record.get("steps", ()) if one["variant"] == variant and one["batch"] == BATCH), None)


def measured_cells(variant, made, measured, below, record):
    seconds = measured["median_us"] / 1e6
    ceiling = record["ceilings"]["fp32_flop_per_second"]
    return (
        spread(measured), f"{measured['mhz']:.0f}", f"{made.flop / seconds / 1e12:.1f}",
        f"{100 * made.flop / seconds / ceiling:.0f}", share(eager(record, BATCH), measured),
        f"{below['median_us'] / measured['median_us']:.2f}" if below else "", deviations(record, variant),
    )


def note(record):
    text = f"One training step of {BATCH} images with Adam, float32; predicted for an H200 (67 TFLOP/s, 4.3 TB/s). "
    if not record:
        return text + "These rungs have not been measured on a GPU yet."
    return text + f"Measured {record['made'][:10]} on {record['machine']['device']}."


if __name__ == "__main__":
    main()
