"""Print the class of pictures and its margin: python predict.py PICTURE ...   Of a model without
labels it prints the pictures of its run that are most like each. It needs onnxruntime, NumPy and
Pillow alone.
"""

import json
import pathlib
import sys

try:
    import exported
    import numpy as np
    import onnxruntime
    from reading import pictures
except ImportError as missing:
    raise SystemExit(f"{missing}: pip install onnxruntime numpy pillow") from None

MODEL = pathlib.Path(__file__).with_name("model.onnx")
NEAREST = 5  # pictures that are named
ON_MAP = 10  # pictures that a place on the map is the mean of


def main(names):
    if names in ([], ["--help"]):
        return "which pictures? python predict.py PICTURE ..."
    try:
        if fault := exported.fault(MODEL.parent):
            return fault
        session = onnxruntime.InferenceSession(str(MODEL))
        facts = json.loads(session.get_modelmeta().custom_metadata_map["kernel_ladder"])
    except Exception as error:  # onnxruntime's are of many types
        return f"{MODEL} cannot be read: {' '.join(str(error).split())}"
    # names of classes in a terminal of another alphabet
    sys.stdout.reconfigure(errors="backslashreplace")
    unread = 0
    for name in names:
        line = "".join(
            char if char.isprintable() else char.encode("unicode_escape").decode() for char in name
        )
        try:
            print(f"{line}: {answer(session, facts, name)}", flush=True)
        except pictures.PictureError as reason:
            unread += 1
            print(f"{line}: {reason}", file=sys.stderr, flush=True)
    return unread > 0


def answer(session, facts, name):
    """The class of a picture and its margin, or the pictures most like it, in words; raises
    PictureError.
    """
    least = pictures.enough(facts["dataset"], facts["image"])
    image, _ = pictures.fit(pictures.read(name, least)[0], facts["dataset"], facts["image"])
    if not facts["classes"]:
        return most_alike(session.run(["features"], {"images": image[None]})[0][0])
    place, *numbers = session.run(
        ["class", "margin", "features", "decisions"], {"images": image[None]}
    )
    if not all(np.isfinite(values).all() for values in numbers):
        raise pictures.PictureError("no answer, because the model computes NaN or Inf from it")
    return f"{facts['classes'][place[0]]}, margin {numbers[0][0]:.3g}"


def most_alike(features):
    """The names of the pictures most like one with these features (D,), with the cosines, the most
    alike first, and where it would lie on the run's map, if there is one.
    """
    mean, vectors = (np.load(MODEL.with_name(name)) for name in ("mean.npy", "pictures.npy"))
    names = json.loads(MODEL.with_name("pictures.json").read_text("utf-8"))
    if not np.isfinite(features).all():
        raise pictures.PictureError("no answer, because the model computes NaN or Inf from it")
    direction = (features - mean) / (np.linalg.norm(features - mean) or 1)
    cosines = vectors.astype(np.float32) @ direction
    best = np.argsort(-cosines, kind="stable")[:NEAREST]
    named = ", ".join(f"{names[place]} ({cosines[place]:.3f})" for place in best)
    return named + on_map(cosines, np.load(MODEL.with_name("map.npy")))


def on_map(cosines, places):
    """A place in words: the mean of those (N, 2) of the nearest pictures on the map, weighted by
    their cosines (N,). t-SNE has no place for a new picture; openTSNE starts from such a mean.
    """
    there = np.flatnonzero(np.isfinite(places[:, 0]) & (cosines > 0))
    nearest = there[np.argsort(-cosines[there], kind="stable")[:ON_MAP]]
    if not len(nearest):
        return ""
    x, y = np.average(places[nearest], axis=0, weights=cosines[nearest])
    return f"; on the map at {x:.2f} from the left and {y:.2f} from the top, by its neighbours"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
