"""The command that most likely helps a run that is not better than its controls, by rule."""

from ladder.data.facts import FOLDER
from ladder.pages import intervals, templates

FEW_STEPS, STEPS = 1_000, 2_000
FEW_TESTED, SHARE = 100, 0.5
RECIPE = "training"  # a key that the rules choose with a network, and for nothing else
COMMAND = ".venv/bin/snakemake report"
OWN = "folder=PATH"  # which a report does not keep
SETTINGS = "run.yaml"  # the settings of a run, as its report has them


def command(summary, declined):
    """{"reason", "command"}, both texts; None for a run that is better than every control, or where
    no rule knows better.

    summary: as summary.json; declined: what the rules would have chosen where a person has set
    other values, [{"keys", "reason"}].
    """
    controls = (summary["changed_copies"] or summary)["controls"] or []
    above = (intervals.kind(each["difference_interval"]) == "above" for each in controls)
    if not controls or all(above):
        return None
    return next(filter(None, (rule(summary, declined) for rule in RULES)), None)


def _own_network(summary, declined):
    chosen = {key for choice in summary["choices"] for key in choice["keys"]}
    if summary["dataset"] != FOLDER or RECIPE in chosen:
        return None
    reason = "the network that the rules choose for pictures of your own is usually better"
    keys = "network=auto normalization=auto features_pool=auto"  # and nothing else of this run
    return {"reason": reason, "command": f"{COMMAND} --config dataset={FOLDER} {OWN} {keys}"}


def _set_otherwise(summary, declined):
    if not declined:
        return None
    keys = (f"{key}={_written(value)}" for key, value in declined[0]["keys"].items())
    return _next(summary, declined[0]["reason"], *keys)


def _few_steps(summary, declined):
    steps = summary["steps"]
    if summary["training"] != "gradient" or steps is None or steps >= FEW_STEPS:
        return None
    return _next(
        summary,
        f"the network was trained for only {templates.counted(steps, 'step')}",
        f"steps={STEPS}",
    )


def _few_tested(summary, declined):
    tested, share = summary["images"]["test"], summary["reproduce"]["settings"].get("test_share", 1)
    if tested >= FEW_TESTED or share >= SHARE:  # 1: the test part is one's own
        return None
    reason = f"{templates.counted(tested, 'test picture')} cannot tell small differences from luck"
    return _next(summary, reason, f"test_share={SHARE}")


RULES = (_own_network, _set_otherwise, _few_steps, _few_tested)


def _next(summary, reason, *keys):
    """With the settings of the run and these keys."""
    own = [OWN] * (summary["dataset"] == FOLDER)
    command = " ".join((COMMAND, "--configfile", SETTINGS, "--config", *own, *keys))
    return {"reason": reason, "command": command}


def _written(value):
    return str(value).replace(" ", "").lower()
