"""Roles: what an artifact is to a run, and the name of a parent of its report. Standard library
only.
"""

import dataclasses
import re

# Kinds beside a run's own: of its encoder before labels trained a head over it, of the controls, as
# the setting `controls` names them, and of the same training by another rung.
START, RANDOM, STRONG, PIXELS, REFERENCE = "start", "random", "strong", "pixels", "reference"
CONTROLS = (RANDOM, STRONG, PIXELS)
# the stage of any score of a run of the list, and how its kind begins: run1
SCORE, RUN = "score", "run"
TEXT = re.compile(r"([^_]*)(?:_(.*?))??(?:_part(\d+))?(?:_seed(\d+))?", re.DOTALL)


@dataclasses.dataclass(frozen=True)
class Role:
    """stage: what makes the artifact; kind: '' for the run's own.

    part: 1 is the run's own, the others are appended to its features. seed: that of a run that
    repeats this one. The text has what is not the default: svm, svm_random, features_part2,
    svm_random_seed3.
    """

    stage: str
    kind: str = ""
    part: int = 1
    seed: int | None = None

    def __str__(self) -> str:
        kind, part = (
            f"_{self.kind}" if self.kind else "",
            f"_part{self.part}" if self.part > 1 else "",
        )
        return f"{self.stage}{kind}{part}{'' if self.seed is None else f'_seed{self.seed}'}"

    @property
    def is_of_another_run(self) -> bool:
        """Whether a run is only compared with this artifact."""
        return self.seed is not None or self.stage == SCORE or self.kind == REFERENCE

    @classmethod
    def parse(cls, text: str) -> "Role":
        """The role of any text: what follows the stage and is neither a part nor a seed is the
        kind.
        """
        match = TEXT.fullmatch(text)
        assert match  # for the type checker: every text matches
        stage, kind, part, seed = match.groups()
        return cls(stage, kind or "", int(part or 1), None if seed is None else int(seed))
