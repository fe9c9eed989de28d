"""The errors a command may end in, each with its exit code. `prefillgate.cli.main` prints them as one line.

Commands translate the errors of the packages below them into these two; anything else is a bug.
"""

from __future__ import annotations

from prefillgate.runs.errors import BadInput, CouldNotMeasure
from prefillgate.runs.errors import RunError as CommandError

__all__ = ["BadInput", "CommandError", "CouldNotMeasure"]
