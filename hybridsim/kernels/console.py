"""Progress of the programs that measure."""

import sys


def say(text: str) -> None:
    """A line on standard output, at once: the next one may take minutes."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
