"""Print the class of pictures and its margin: python predict.py PICTURE ...   It needs onnxruntime, NumPy and Pillow alone."""
import json
import sys

import numpy as np
import onnxruntime
from PIL import Image, ImageOps

sys.tracebacklimit = 0   # a picture that cannot be read is one line
session = onnxruntime.InferenceSession(f"{sys.path[0]}/model.onnx")
facts = json.loads(session.get_modelmeta().custom_metadata_map["kernel_ladder"])
height, width, channels = facts["image"]
for name in sys.argv[1:]:
    picture = ImageOps.exif_transpose(Image.open(name)).convert("RGBA")
    picture = Image.alpha_composite(Image.new("RGBA", picture.size, "white"), picture).convert(facts["mode"])
    pixels = np.asarray(ImageOps.fit(picture, (width, height), Image.Resampling.BICUBIC)).reshape(1, height, width, -1)
    light = facts["light_on_dark"] and np.median(pixels[:, [0, -1]]) > 127   # dark on a light ground, as ink on paper
    images = np.repeat(255 - pixels if light else pixels, channels // pixels.shape[3], axis=3)
    chosen, margin = session.run(["class", "margin"], {"images": images})
    print(f"{name}: {facts['classes'][chosen[0]]}, margin {margin[0]:.3g}")
