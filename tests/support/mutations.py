"""Mutants of a program: what the scripts that change kernels share."""

import dataclasses
import random
import re


@dataclasses.dataclass(frozen=True)
class Mutant:
    """file: in which `new` replaces the characters from start to end; number, line: of the line, as
    mutated.
    """

    file: str
    number: int
    line: str
    start: int
    end: int
    new: str

    def mutated(self, text):
        """The text of the file with the mutation."""
        return text[: self.start] + self.new + text[self.end :]

    def place(self):
        """'relu.cu:5: the mutated line'."""
        return f"{self.file}:{self.number}: {self.line}"


def of_line(file, number, line, at, code, first, mutations):
    """The mutants of one line, which begins at character `at` of its file.

    code: as long as the line at most, without what is no code; first: column of it from which on it
    is changed; mutations: (pattern, replacements).
    """
    for pattern, replacements in mutations:
        for match in re.compile(pattern).finditer(code, first):
            for new in replacements:
                mutated = line[: match.start()] + new + line[match.end() :]
                yield Mutant(
                    file, number, mutated.strip(), at + match.start(), at + match.end(), new
                )


def sample(mutants, count, seed=0):
    """So many of the mutants, in the order of their places, the same ones for a seed; all of them
    for None.
    """
    if count is None or count >= len(mutants):
        return mutants
    return sorted(
        random.Random(seed).sample(mutants, count), key=lambda mutant: (mutant.file, mutant.number)
    )
