"""The report's sections on how a run was made: its machines, its artifacts, its settings, and how to make it again."""

from ladder.pages import facts, reproduce, roles, rule_graph
from ladder.store import first_use


def setup(inputs, numbers):
    return {"launching": facts.final(inputs).metrics.get("launching"), "gpus": _gpus(inputs),
            **{key: numbers[key] for key in ("checks", "machines", "went_on")}}


def first_uses(inputs):
    """What was checked before its first use on a GPU, each once: the notes of store/first_use.py."""
    notes = [artifact.manifest["notes"].get(first_use.NOTE) for _, artifact in facts.in_order(inputs)]
    return list({(note["name"], note["made"]): note for note in notes if note}.values())


def machines(inputs):
    """The distinct machines (with thread counts) of the artifacts, each with the roles made there."""
    alike = {}
    for role, artifact in facts.in_order(inputs):
        machine = {**artifact.manifest["machine"], "threads": artifact.manifest["threads"]}
        del machine["host"]
        blas = machine.pop("blas")   # like the libraries, it depends on the imports of a stage
        _, made_here, libraries = alike.setdefault(tuple(machine.items()), (machine, [], set()))
        made_here.append(roles.title(role))
        libraries.update(f"{name} {version}" for name, version in artifact.manifest["libraries"].items())
        libraries.update(blas.split(", ") if blas else [])
    return [{**machine, "roles": made_here, "libraries": sorted(libraries)}
            for machine, made_here, libraries in alike.values()]


def _gpus(inputs):
    """GPU, with its driver and array library -> the titles of the roles whose classifiers or components it computed."""
    gpus = {}
    for role, artifact in facts.in_order(inputs):
        if gpu := artifact.metrics.get("gpu"):
            gpus.setdefault(gpu, []).append(roles.title(role))
    return gpus


def reproduction(inputs, numbers):
    return {"yaml": reproduce.text(numbers["reproduce"]["settings"]), "graph": rule_graph.graph(numbers["reproduce"]["stages"])}


def size(artifact):
    """The bytes of an artifact's files."""
    return sum(file["bytes"] for file in artifact.manifest["files"].values())


def artifacts(inputs, numbers):
    return [{"role": roles.title(role), "version": artifact.version, "folder": facts.from_root(artifact.folder),
             "bytes": size(artifact),
             "made": artifact.manifest["made"], "seconds": artifact.manifest["seconds"],
             "peak_memory_bytes": artifact.manifest["peak_memory_bytes"]} for role, artifact in facts.in_order(inputs)]


def settings(inputs, numbers):
    """All parameters by stage; for a control only those that differ from the run's."""
    groups = []
    for role, artifact in facts.in_order(inputs):
        params = {key: value for key, value in artifact.manifest["spec"]["params"].items() if key != "table"}
        main = role.partition("_")[0]
        if main != role and main in inputs:
            usual = facts.params(inputs, main)
            params = {key: value for key, value in params.items() if key not in usual or usual[key] != value}
        groups.append({"stage": roles.title(role), "control": main != role, "params": params})
    return groups
