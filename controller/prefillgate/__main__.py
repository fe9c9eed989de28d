"""`python -m prefillgate`, for machines whose script folder is not on the path."""

import sys

from prefillgate.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
