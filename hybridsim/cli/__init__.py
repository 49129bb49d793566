"""The command line: parses arguments, calls one function, prints. No logic lives here."""

from hybridsim.cli.app import main

__all__ = ["main"]
