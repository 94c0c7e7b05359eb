"""The jobs of a command: the inputs and parameters of the rule that makes each artifact of a plan.

Snakemake goes by file times, so the times of what is there are put in the order of the work
(`put_in_order`); then -R, -F, -f and --until do what they do anywhere. What has to be made although
it is there has one more input, a file that is newer than anything else.
"""

import functools
import math
import os
import shlex
from collections.abc import Iterable
from typing import Any

from ladder import caller
from ladder.classifiers import backends
from ladder.data import listing
from ladder.errors import UserError
from ladder.machine import requirements, runtime
from ladder.network import networks
from ladder.rungs import catalog
from ladder.store import lineage, manifests, shorter
from ladder.store.versions import canonical
from ladder.workflow import array_libraries, copies, places, reasons
from ladder.workflow.chains import prediction_roles
from ladder.workflow.commands import TARGETS, Command
from ladder.workflow.planning import PlannedArtifact
from ladder.workflow.plans import RunPlan
from ladder.workflow.stages import COPIES, STAGES

# the path of an input, and whether its time does not count: Snakemake's ancient()
Input = tuple[str, bool]
# Two stages at a time are done sooner on images with up to so many numbers in all: on small data a
# stage is mostly one thread's work; on medium data only where no network is trained, so that all
# but the first stages have another one beside them.
SMALL_DATA, MEDIUM_DATA = 2**24, 2**27
# A training on small data too, of up to so many multiply-adds of forward passes, some five seconds
# of a core: longer ones outlast all that could run beside them.
SHORT_TRAINING = 2**37


_planned: set[str] = set()  # versions that a rule of this process makes


class Jobs:
    """The jobs that make a plan's artifacts; every method without a leading underscore is for
    rules.

    placed  role -> where the copies of its files are, with the prefix of a module
    own     the versions that its rules make
    """

    def __init__(self, plan: RunPlan, command: Command, placed: dict[str, list[str]]) -> None:
        self.plan, self.chain, self.now, self.dry, self._placed = (
            plan,
            plan.chain,
            str(command.now),
            command.dry,
            placed,
        )
        # One rule makes an artifact: that of the first, where another workflow has this one as a
        # module more than once.
        self.own = plan.artifacts.keys() - _planned
        _planned.update(self.own)
        # Snakemake itself would only run the target again, which makes nothing.
        self.forced = {
            self.chain[role].version for role in command.forced & self.chain.keys() & {*TARGETS}
        }
        self.asked = command.targets
        self._retrains = command.options.forceall or "train_network" in command.forced
        # whether nothing has to run, as far as inputs were asked for; None before
        self.idle: bool | None = None
        self._damage = functools.cache(self._find_damage)
        self._broken_above = functools.cache(self._find_broken_above)
        self.goes_on_from = functools.cache(self._find_shorter)

    def put_in_order(self, now: int) -> None:
        """Set file times so that Snakemake finds up to date what is there.

        No manifest is then newer than one that depends on it, no current copy is older than its
        artifact, and nothing is newer than `now`, nanoseconds since the epoch.
        """
        times: dict[str, int] = {}

        def visit(artifact: PlannedArtifact) -> int:
            if artifact.version not in times:
                above = max((visit(parent) for parent in artifact.parents.values()), default=0)
                times[artifact.version] = max(above, _date(artifact.manifest, above, now))
                _date(f"{artifact.folder}/{manifests.COMPLETE}", 0, now)
            return times[artifact.version]

        for artifact in self.plan.artifacts.values():
            visit(artifact)
        for role, pages in self._placed.items():
            for page in pages:
                if copies.is_published(self.chain[role].folder, page):
                    _date(page, times[self.chain[role].version], now)

    # Inputs. They raise UserError where a job cannot run, before any work.

    def inputs(self, version: str, *names: str) -> list[Input]:
        """The inputs of a stage: the manifests of the parents of these names, of all parents
        without names, and `now` if it has to run although it is there.
        """
        artifact = self.plan.artifacts[version]
        parents = [
            parent for name, parent in artifact.parents.items() if not names or name in names
        ]
        again = self._has_to_run(artifact)
        if os.path.exists(artifact.manifest) and not again:
            return [
                (parent.manifest, not self._changes(parent, artifact))
                for parent in parents
                if os.path.exists(parent.manifest)
            ]
        self.idle = False
        places.check_writable("results", "logs")
        check_runnable(artifact)
        above = {parent.manifest for parent in parents}.union(
            *(self._broken_above(parent.version) for parent in parents)
        )
        return [(self.now, False)] * again + [(path, False) for path in sorted(above)]

    def inputs_of(self, *roles: str) -> list[Input]:
        """The inputs of a target: the manifests of these roles, and of what is damaged or missing
        above them.
        """
        self.idle = self.idle is not False
        for role in roles:
            if role not in self.chain:
                there = ", ".join(stage for stage in STAGES if stage in self.chain)
                raise UserError(f"{role}: this configuration has no such stage; it has {there}")
        joined = ["joined"] if "features" in roles and "joined" in self.chain else []
        return self._manifests(self.chain[role] for role in (*roles, *joined))

    def _manifests(self, wanted: Iterable[PlannedArtifact]) -> list[Input]:
        """The manifests of artifacts, and of what is damaged or missing above them."""
        manifests_above = (
            {artifact.manifest} | self._broken_above(artifact.version) for artifact in wanted
        )
        return [(path, False) for path in sorted(set[str]().union(*manifests_above))]

    def copied(self, role: str) -> list[Input]:
        """The inputs of a role's copies in results/: its artifact, and `now` if they are not those
        of its files.
        """
        for place in self._placed[role]:
            if os.path.isdir(place) or (os.path.islink(place) and not os.path.exists(place)):
                kind = "a folder" if os.path.isdir(place) else "a link that leads nowhere"
                raise UserError(f"{place} is {kind}; move it away: a page goes there")
        same = all(
            copies.is_published(self.chain[role].folder, copy) for copy in self._placed[role]
        )
        return self.inputs_of(role) + ([] if same else self.always())

    def always(self) -> list[Input]:
        """The input of rules that run every time they are requested."""
        self.idle = False
        places.check_writable("results", "logs")
        return [(self.now, False)]

    def listed(self) -> list[Input]:
        """The inputs of the page of runs: all that it reads of each run that is listed."""
        return self._manifests(
            artifact
            for run in self.plan.listed
            for artifact in (run.report, run.weights)
            if artifact
        )

    def after_runs(self) -> list[Input]:
        """The inputs of pages on the content of results/: the pages of runs that the command makes
        too come first.
        """
        asked = [pages for role, pages in self._placed.items() if self.asked & {role, *pages}]
        return self.always() + [(page, False) for pages in asked for page in pages]

    def predicted(self) -> list[Input]:
        """The inputs of predictions; raises UserError if no pictures are named or found, before a
        model is trained.
        """
        listing.find(self.plan.run.settings.predict)
        if not self.plan.run.settings.share:
            raise UserError(
                "predictions: they show pictures, which share=false keeps off all pages; share=true makes them"
            )
        if lineage.answering(self.chain) is None:
            raise UserError(
                "predictions: this run has no labels, so it names no classes; `snakemake model` makes "
                "results/model.zip, whose predict.py names the most alike of its pictures for new ones, and "
                "their places on the map"
            )
        return self.always() + self.inputs_of(*prediction_roles(self.chain))

    # Why a job runs.

    def _find_damage(self, version: str) -> str:
        """What is damaged in an artifact that is there, in words; '' if nothing is."""
        artifact = self.plan.artifacts[version]
        try:  # what is copied to results/ has no reader that would check it
            manifests.verify(artifact.folder, thoroughly=artifact.stage in COPIES)
        except manifests.Damaged as error:
            caller.tell(damaged=[*(caller.fact("damaged") or []), version])
            return f"{error.path} ({error.fault})"
        return ""

    def _find_broken_above(self, version: str) -> set[str]:
        """The manifests above a whole artifact that are damaged or missing, or its own: no other
        job asks for them.

        Snakemake does not look above a file that is there, nor at what depends on a job that has a
        reason of its own to run, except through an input whose time counts.
        """
        artifact = self.plan.artifacts[version]
        if not os.path.exists(artifact.manifest):
            return {artifact.manifest}
        own = {artifact.manifest} if self._damage(version) else set()
        return own.union(
            *(self._broken_above(above.version) for above in artifact.parents.values())
        )

    def _has_failed(self, artifact: PlannedArtifact) -> bool:
        """Whether a run failed in a list, and is requested alone now: then it repeats the
        reason.
        """
        if caller.fact("keep_failed") or all(
            planned.version != artifact.version for planned in self.chain.values()
        ):
            return False
        manifest = manifests.read_if_whole(artifact.folder)
        return manifest is not None and "failed" in manifest

    def _has_to_run(self, artifact: PlannedArtifact) -> bool:
        """Whether an artifact has to be made although it is there."""
        return (
            bool(self._damage(artifact.version))
            or artifact.version in self.forced
            or self._has_failed(artifact)
        )

    def _changes(self, parent: PlannedArtifact, child: PlannedArtifact) -> bool:
        """Whether a child that is there is made again with its parent. It is not where the parent
        is damaged or missing, since that gets its former bytes back.
        """
        if self._damage(parent.version) or not os.path.exists(parent.manifest):
            return False
        changed = parent.version in self.forced or self._has_failed(parent)
        return (
            changed or os.stat(parent.manifest).st_mtime_ns <= os.stat(child.manifest).st_mtime_ns
        )

    def why(self, version: str) -> str:
        """The reason of a job for its message."""
        if damage := self._damage(version):
            return f"damaged: {damage}"
        start = self.goes_on_from(version)
        going_on = f", goes on from {start.rpartition('/')[2]}" if start else ""
        return (reasons.why(self.plan.artifacts[version]) or "made again") + going_on

    # Parameters.

    def spec_file(self, version: str) -> str:
        """The file, beside its log, with a stage's spec and inputs, which are too long for a
        command line.
        """
        artifact = self.plan.artifacts[version]
        path = f"logs/{artifact.stage}/{version}.json"
        if not self.dry:
            places.write(
                path,
                canonical(
                    {
                        "spec": artifact.spec,
                        "inputs": {name: above.folder for name, above in artifact.parents.items()},
                    }
                ),
            )
        return path

    def options(self, version: str, *keys: str, **others: str) -> str:
        """--option KEY=VALUE for each setting of the artifact's run; others: NAME=KEY, or a fixed
        value.
        """
        known = self.plan.options(version)
        given = {key: known[key] for key in keys} | {
            name: known.get(key, key) for name, key in others.items()
        }
        return " ".join(
            f"--option {shlex.quote(f'{name}={value}')}" for name, value in given.items()
        )

    def _find_shorter(self, version: str) -> str:
        """The folder of the finished shorter training that one goes on from; '' without one, or if
        it is made again.
        """
        artifact = self.plan.artifacts[version]
        there = os.path.exists(artifact.manifest) and not self._damage(version)
        trained = (
            None
            if there or self._retrains or version in self.forced
            else shorter.find(artifact.spec, version)
        )
        return f"results/train/{trained}" if trained else ""

    def threads(self, version: str | None) -> int:
        """CPU threads of a job: the configuration's, not --cores, which limits the jobs that run at
        once; 1 for a mere page; half of `all` where two jobs at a time are done sooner.
        """
        artifact = self.plan.artifacts[version] if version else None
        if artifact and STAGES[artifact.stage].anywhere:
            return 1
        run = self.plan.runs.get(version or "", self.plan.run)
        trains = any(artifact.stage == "train" for artifact in self.chain.values())
        facts, most = run.facts, SMALL_DATA if trains else MEDIUM_DATA
        numbers = (facts.train + facts.test + facts.unlabelled) * math.prod(facts.shape)
        halves = run.given.threads == "all" and numbers <= most
        if artifact and artifact.stage == "train":
            params = artifact.spec["params"]
            macs = sum(layer.macs for layer in networks.from_params(params).layers)
            key = shorter.length(params)
            images = params[key] * (params["batch_size"] if key == "steps" else facts.train)
            halves &= macs * images <= SHORT_TRAINING
        threads = int(run.settings.threads)
        return max(1, threads // 2) if halves else threads

    def prediction_options(self) -> str:
        """--input ROLE=FOLDER for each artifact that predictions need."""
        return " ".join(
            f"--input {role}={self.chain[role].folder}" for role in prediction_roles(self.chain)
        )


def check_runnable(artifact: PlannedArtifact) -> None:
    """Raise UserError if this machine lacks the rung or a library that a stage names."""
    params: dict[str, Any] = artifact.spec["params"]
    if STAGES[artifact.stage].anywhere or runtime.jobs_run_elsewhere():
        return
    for key, module in (
        ("backend", backends),
        ("array_library", array_libraries),
        ("variant", catalog),
        ("products", requirements),
    ):
        if reason := module.unavailable(params[key]) if key in params else None:
            raise UserError(reason)
    if reason := requirements.missing(artifact.stage):
        raise UserError(reason)


def _date(path: str, earliest: int, now: int) -> int:
    """Give a file a time from `earliest` to `now` in nanoseconds; returns its time, 0 where there
    is none.
    """
    try:
        modified = os.stat(path).st_mtime_ns
        wanted = max(min(modified, now), earliest)
        if wanted != modified:
            os.utime(path, ns=(wanted, wanted))
        return wanted
    except OSError:  # there is none, or it is somebody else's
        return 0
