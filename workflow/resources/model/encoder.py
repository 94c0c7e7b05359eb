"""The encoder of this folder in PyTorch, free to copy: Encoder()(images uint8 (N, H, W, C)) gives
features float32 (N, D).
"""

import json
import pathlib

import torch
import torch.nn.functional as F
from safetensors.torch import load_file

STATISTICS = "running_mean", "running_var", "weight", "bias"
# of layers: functions of its row of encoder.json, its weights w and its inputs; a vector is a map
# of one pixel
KINDS = {
    "conv2d": lambda row, w, x: F.conv2d(
        x, w["weight"], w.get("bias"), row["stride"], row["padding"]
    ),
    "dense": lambda row, w, x: F.linear(x.flatten(1), w["weight"], w["bias"])[..., None, None],
    "batchnorm": lambda row, w, x: F.batch_norm(
        x, *(w[name] for name in STATISTICS), eps=row["epsilon"]
    ),
    "relu": lambda row, w, x: F.relu(x),
    "global_avgpool": lambda row, w, x: x.mean((2, 3), keepdim=True),
    "maxpool2d": lambda row, w, x: F.max_pool2d(x, row["window"], row["stride"], row["padding"]),
    "avgpool2d": lambda row, w, x: F.avg_pool2d(x, row["window"], row["stride"], row["padding"]),
    "upsample2d": lambda row, w, x: F.interpolate(x, scale_factor=2.0),
    "pad": lambda row, w, x: F.pad(x, 4 * [row["amount"]]),
    "lrn": lambda row, w, x: F.local_response_norm(
        x, row["size"], row["alpha"], row["beta"], row["k"]
    ),
    "position_norm": lambda row, w, x: (
        x / (x.square().sum(1, keepdim=True) + row["epsilon"]).sqrt()
    ),
    "local_contrast": lambda row, w, x, image: (
        x
        / (F.unfold(image, row["kernel"]).var(1, correction=0) + row["epsilon"])
        .sqrt()
        .unflatten(1, (1, *x.shape[2:]))
    ),
    "soft_threshold": lambda row, w, x: F.relu(torch.cat([x, -x], 1) - row["threshold"]),
    "winner_take_all": lambda row, w, x: (
        x
        * torch.zeros_like(x)
        .flatten(2)
        .scatter(2, x.flatten(2).topk(row["winners"], 2).indices, 1)
        .view_as(x)
    ),
    "attention": lambda row, w, x: F.scaled_dot_product_attention(
        *x.flatten(2).mT.chunk(3, 2)
    ).mT.unflatten(2, x.shape[2:]),
    "add": lambda row, w, a, b: a + b,
    "flatten": lambda row, w, x: x.flatten(1)[..., None, None],
    **dict.fromkeys(("dropout", "l1_penalty", "sample"), lambda row, w, x, *others: x),
}


class Encoder(torch.nn.Module):
    def __init__(self, folder=pathlib.Path(__file__).parent):
        super().__init__()
        # networks whose features follow one another
        self.parts = json.loads((folder / "encoder.json").read_text("utf-8"))
        for name, value in load_file(folder / "encoder.safetensors").items():
            self.register_parameter(
                name.replace(".", "/"), torch.nn.Parameter(value, name.endswith(("weight", "bias")))
            )

    def forward(self, images):
        halves = [
            self.features(part, images.float(), self.weights(str(at)))
            for at, part in enumerate(self.parts)
        ]
        return torch.cat([half[at] for at in range(2) for half in halves if at < len(half)], 1)

    def weights(self, name):
        return {
            path.removeprefix(f"{name}/"): value
            for path, value in self.named_parameters()
            if path.startswith(f"{name}/")
        }

    def features(self, part, x, fitted):
        if "pixel_whitening" in fitted:
            x = ((x.flatten(1) / 255 - fitted["pixel_mean"]) @ fitted["pixel_whitening"]).view(
                x.shape
            )
        x = (x * fitted["pixel_scale"] + fitted["pixel_offset"]).permute(0, 3, 1, 2)
        outputs = {"input": torch.cat([x, x.flip(3)]) if part["flip"] else x}
        for row in part["layers"]:
            own = {
                name.rpartition("/")[2]: value
                for name, value in fitted.items()
                if name.startswith(f"{row['layer']}/")
            }
            last = outputs[row["layer"]] = KINDS[row["kind"]](
                row, own, *(outputs[name] for name in row["inputs"])
            )
        halves = [last.flatten(1)]
        # the mean of an image and its mirror image and, apart from it, half their difference
        if part["flip"]:
            here, there = halves[0].chunk(2)
            halves = [(here + there) / 2, (here - there) / 2][: 2 if part["flip"] == "apart" else 1]
        halves = [half * fitted["scale"] for half in (halves[0] - fitted["mean"], *halves[1:])]
        if "components" in fitted:
            halves = [
                half @ fitted[name]
                for half, name in zip(halves, ("components", "odd_components"), strict=False)
            ]
        return [half * part["weight"] for half in halves]
