"""`python -m prefillgate`, and the script: nothing is imported before an interruption ends in its exit code."""

from __future__ import annotations

import signal
import sys
from types import FrameType

EXIT_INTERRUPTED, EXIT_TERMINATED = 130, 143


def main() -> int:
    """Import the command line, which takes a moment, and run it. Returns the exit code."""
    try:
        signal.signal(signal.SIGTERM, _terminate)
        from prefillgate.cli.main import main as run

        return run()
    except KeyboardInterrupt:
        return _stopped(EXIT_INTERRUPTED)
    except SystemExit as stop:
        if stop.code != EXIT_TERMINATED:
            raise
        return _stopped(EXIT_TERMINATED)


def _terminate(number: int, frame: FrameType | None) -> None:
    raise SystemExit(EXIT_TERMINATED)


def _stopped(code: int) -> int:
    from prefillgate.cli.speaking import begin_speaking, tell_beginning

    begin_speaking(sys.argv)
    tell_beginning(sys.argv[1:])
    return code


if __name__ == "__main__":
    sys.exit(main())
