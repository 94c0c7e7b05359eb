"""What it takes to make a run again: its settings as YAML, the program, the libraries, the data's
checksums, and the stages.

inputs are artifacts by role, as in report.py.
"""

import yaml

from ladder.arithmetic import multipliers
from ladder.network import networks
from ladder.pages import roles
from ladder.pages.network_file import text as network_file_text
from ladder.store import lineage

# Settings that a stage's parameters leave out where they are off or exact.
OFF = {
    "features_two_polarity": "none",
    "features_polarity_scale": "none",
    "features_max_pool": 1,
    "features_pca": "none",
    "classify_shifts": "none",
}
EXTRA = ("linear", "ridge", "knn")


def settings(inputs, params):
    """Configuration key -> value: everything that the run depends on and config.yaml may say;
    params: of the report.
    """
    report = {"spec": {"params": params}}
    config = lineage.settings(
        {"report": report, **{role: artifact.manifest for role, artifact in inputs.items()}}
    )
    used = multipliers_of(inputs)
    for key in (*used, *unwritten(inputs)):
        config.pop(key, None)
    if set(used.values()) != {"exact"}:
        config |= {key: name for key, name in used.items() if name in multipliers.MULTIPLIERS}
    if "table" in params:
        config["network"] = params["network"]
    if "train" not in inputs:
        config["training"] = "patches" if "patches" in inputs else "gradient"
    elif "patches" not in inputs:
        config.setdefault("training", "gradient")
    if "epochs" in config:
        config["steps"] = "none"
    if "features" in inputs:
        config = {**OFF, **config}
    config["evaluations"] = [name for name in EXTRA if name in inputs]
    config["feature_map"] = "map" in inputs
    config.setdefault("label_counts", [])
    of_page = {key: params[key] for key in ("name", "tags", "targets") if params.get(key)}
    return dict(sorted(config.items())) | of_page


def unwritten(inputs):
    """The settings that the run has and its artifacts do not keep in the form of config.yaml."""
    specs = [artifact.manifest["spec"]["params"] for artifact in inputs.values()]
    present = {
        "features_concatenate": "joined" in inputs,
        "folder": any("folder_sha256" in params for params in specs),
        "initial_weights": any("file_sha256" in params for params in specs),
    }
    data = inputs["data"].manifest if "data" in inputs else {}
    return [
        *(key for key, there in present.items() if there),
        *(
            key
            for key, name in multipliers_of(inputs).items()
            if name not in multipliers.MULTIPLIERS
        ),
        *data.get("metrics", {}).get("given", ()),
    ]


def multipliers_of(inputs):
    """The multipliers of the training and of what answers, by key; a person's table by its
    identity.
    """
    params = [
        next((inputs[role].manifest["spec"]["params"] for role in stages if role in inputs), {})
        for stages in (("train",), ("evaluate", "features"))
    ]
    trained, tested = (own.get("multiplier", "exact") for own in params)
    return {"multiplier": trained, "test_multiplier": tested}


def named_multipliers(inputs, params):
    """As `multipliers_of`, but a person's table as 'mine.npy (63234778)'; params: of the report."""
    return {
        key: name
        if name in multipliers.MULTIPLIERS
        else f"{params.get(key, 'a table')} {digits(name)}"
        for key, name in multipliers_of(inputs).items()
    }


def digits(identity):
    """The first digits of a table's digest, '(63234778)'."""
    return f"({identity.rpartition(' ')[2][:8]})"


def text(settings):
    """Settings as the content of a file for --configfile, a line for each."""
    return "".join(
        yaml.safe_dump(
            {key: value}, default_flow_style=True, width=10_000, allow_unicode=True, sort_keys=False
        )
        .strip()
        .removeprefix("{")
        .removesuffix("}")
        + "\n"
        for key, value in settings.items()
    )


def network_file(params):
    """The file of the run's network, if it is a person's own; params: of the report."""
    return network_file_text(networks.from_params(params)) if "table" in params else None


def stages(inputs):
    """The run's stages and its controls' in the order of the work: [{"stage", "version", "from":
    versions it was made from}].

    stage: its title, as 'svm, raw pixels'.
    """
    seen = {}
    for role in roles.in_order(inputs):
        artifact = inputs[role]
        seen.setdefault(
            artifact.version,
            {
                "stage": roles.title(role),
                "version": artifact.version,
                "from": list(artifact.manifest["spec"]["parents"].values()),
            },
        )
    return list(seen.values())


def checksums(inputs):
    """File of the prepared data -> its sha256."""
    return {name: facts["sha256"] for name, facts in inputs["data"].manifest["files"].items()}
