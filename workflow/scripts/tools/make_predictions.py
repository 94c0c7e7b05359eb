"""Classify the user's own pictures with the model of a run: predictions.html, predictions.json and
predictions.csv.

The rule `predictions` passes the run's artifacts. Pictures that cannot be read are skipped, and the
page lists the reasons. The exit status is 0, or 2 with a one-line message if no picture was found
or could be read.
"""

import json
import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))

from ladder import progress
from ladder.data import listing
from ladder.data.reading import pictures
from ladder.demo.predictor import Predictor
from ladder.errors import UserError
from ladder.files import shown
from ladder.machine import runtime
from ladder.pages import output, predictions
from ladder.stage import command, stage_script
from ladder.store import artifacts


def main():
    arguments = parse()
    progress.start_logging(arguments.log)
    runtime.set_threads(arguments.threads)
    try:
        files, left_out = listing.find(arguments.pictures)
        inputs = {role: artifacts.Artifact(folder) for role, folder in arguments.input}
        taken, skipped = take(files, inputs["data"])
        if not taken:
            raise UserError(
                f"predict: none of the {len(files)} files could be read: "
                f"{'; '.join(f'{file.name}: {file.reason}' for file in skipped[:3])}"
            )
        predictor = Predictor(
            inputs, arguments.threads, arguments.data_residency, arguments.multiplier
        )
        answered = predictions.answers(predictor, taken)
        write(arguments.output, predictor, answered, skipped, [shown(path) for path in left_out])
    except UserError as error:
        stage_script.end(str(error), 2)
    others = [(file.name, file.reason) for file in skipped]
    others += [(shown(path), "no picture by its name") for path in left_out]
    if others:
        progress.log.info("%s", listing.skipping(others, len(files) + len(left_out)))
    for answer in answered[:10]:
        progress.log.info("%s: %s", answer["file"], answer["class"])
    progress.log.info(
        "%s: %d picture%s classified%s",
        arguments.output / "predictions.html",
        len(answered),
        "s" if len(answered) != 1 else "",
        f", {len(skipped)} skipped" if skipped else "",
    )


def take(files, data):
    """(Pictures, Skipped) of these files; data: the artifact with the images that they are made
    like.
    """
    taken, skipped = [], []
    dataset, shape = (
        data.manifest["spec"]["params"]["dataset"],
        data.array("train_images.npy").shape[1:],
    )
    for path in progress.bar(files, "pictures", "picture"):
        try:
            taken.append(pictures.take(path, dataset, shape, shown(path)))
        except pictures.PictureError as error:
            skipped.append(predictions.Skipped(shown(path), str(error)))
    return taken, skipped


def write(folder, predictor, answered, skipped, left_out):
    summary = json.dumps(
        predictions.summary(predictor, answered, skipped), indent=1, ensure_ascii=False
    )
    for suffix, text in (
        ("json", f"{summary}\n"),
        ("csv", predictions.csv_text(predictor, answered, skipped)),
        ("html", predictions.page(predictor, answered, skipped, left_out)),
    ):
        output.write(folder / f"predictions.{suffix}", text)


def parse():
    parser = command.parser(__doc__)
    parser.add_argument("pictures", nargs="*", metavar="PICTURE", help="files, or folders of files")
    parser.add_argument("--input", type=pair, action="append", default=[], metavar="ROLE=FOLDER")
    parser.add_argument(
        "--output",
        type=pathlib.Path,
        default=pathlib.Path("results"),
        help="the folder to write to",
    )
    parser.add_argument("--threads", type=int, default=runtime.available_cores())
    parser.add_argument("--data-residency", default="auto")
    parser.add_argument(
        "--multiplier",
        default="exact",
        help="the run's test_multiplier: a name, or the file of a table",
    )
    parser.add_argument("--log", type=pathlib.Path)
    return parser.parse_args()


def pair(text):
    role, _, folder = text.partition("=")
    return role, folder


if __name__ == "__main__":
    main()
