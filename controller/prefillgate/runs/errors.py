"""What ends a run without a verdict: what a person can mend, or a measurement that could not be made.

RunError
├── BadInput          what was asked for cannot be used; it is mended where it was written
└── CouldNotMeasure   a server never answered, or a store is torn or away; it may be over by itself
    └── RunBroken     that, in a run that stands in its store already: the same request resumes it

The errors of the packages below are translated into these, the original chained; anything else is a bug.
"""

from __future__ import annotations


class RunError(Exception):
    """Base of all. The message is what a person reads: the field, the value, what is allowed."""

    exit_code = 1  # of a process that ends with it


class CouldNotMeasure(RunError):
    """The measurement could not be made or trusted. `arm`: whose server did not answer as one must; empty: it is not
    about one."""

    def __init__(self, message: str, arm: str = "") -> None:
        super().__init__(message)
        self.arm = arm


class BadInput(RunError):
    """What was given cannot be used (a file, a number, a URL)."""

    exit_code = 2


class RunBroken(CouldNotMeasure):
    """A run that stands in its store and could not go on: the same request resumes it."""
