"""The report's sections on how a run was made: its machines, its artifacts, and how to make it
again.
"""

from ladder.pages import facts, reproduce, roles
from ladder.store import first_use


def setup(inputs, numbers):
    return {
        "launching": facts.final(inputs).metrics.get("launching"),
        "gpus": _gpus(inputs),
        **{key: numbers[key] for key in ("checks", "machines", "went_on")},
    }


def first_uses(inputs):
    """What was checked before its first use on a GPU, each once: the notes of
    store/first_use.py.
    """
    notes = [
        artifact.manifest["notes"].get(first_use.NOTE) for _, artifact in facts.in_order(inputs)
    ]
    return list({(note["name"], note["made"]): note for note in notes if note}.values())


def machines(inputs):
    """The distinct machines (with thread counts) of the artifacts, each with the roles made
    there.
    """
    alike = {}
    for role, artifact in facts.in_order(inputs):
        machine = {**artifact.manifest["machine"], "threads": artifact.manifest["threads"]}
        del machine["host"]
        blas = machine.pop("blas")  # like the libraries, it depends on the imports of a stage
        _, made_here, libraries = alike.setdefault(tuple(machine.items()), (machine, [], set()))
        made_here.append(roles.title(role))
        libraries.update(
            f"{name} {version}" for name, version in artifact.manifest["libraries"].items()
        )
        libraries.update(blas.split(", ") if blas else [])
    return [
        {**machine, "roles": made_here, "libraries": sorted(libraries)}
        for machine, made_here, libraries in alike.values()
    ]


def _gpus(inputs):
    """GPU, with its driver and array library -> the titles of the roles whose classifiers or
    components it computed.
    """
    gpus = {}
    for role, artifact in facts.in_order(inputs):
        if gpu := artifact.metrics.get("gpu"):
            gpus.setdefault(gpu, []).append(roles.title(role))
    return gpus


def reproduction(inputs, numbers):
    stages = numbers["reproduce"]["stages"]
    return {
        "yaml": reproduce.text(numbers["reproduce"]["settings"]),
        "titles": {stage["version"]: stage["stage"] for stage in stages},
        "folders": {
            artifact.version: f"{artifact.folder.parent.name}/{artifact.version}"
            for artifact in inputs.values()
        },
    }


def size(artifact):
    """The bytes of an artifact's files."""
    return sum(file["bytes"] for file in artifact.manifest["files"].values())
