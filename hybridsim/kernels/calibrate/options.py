"""The options of the calibration program. Imports no torch, so that --help works without it."""

import argparse
from pathlib import Path


def _count(text: str) -> int:
    """A whole number from 0."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not allowed; allowed: whole numbers from 0")
    return int(text)


def positive(text: str) -> int:
    """A whole number from 1."""
    if not _count(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not allowed; allowed: whole numbers from 1")
    return int(text)


def parser() -> argparse.ArgumentParser:
    """The options, once for all ways to start the program."""
    options = argparse.ArgumentParser(
        prog="python -m hybridsim.kernels.calibrate",
        description="Measure a cost profile on this machine's GPU. Started again with the same "
        "--out, it goes on where it stopped.",
        epilog="Example: hybridsim calibrate --model qwen3.5-0.8b --out profile.json",
    )
    options.add_argument("--model", required=True, help="model of the catalogue")
    options.add_argument("--tp", type=positive, default=1, help="one rank of so many (default 1)")
    options.add_argument("--out", type=Path, required=True, help="profile to write or complete")
    options.add_argument("--fit-steps", type=_count, default=60, help="whole steps for the fit")
    options.add_argument("--held-out", type=_count, default=0, help="whole steps no fit may see")
    options.add_argument("--held-out-out", type=Path, help="file for the held-out steps")
    options.add_argument("--thin", type=positive, default=1, help="every n-th value of an axis")
    options.add_argument("--commit", default="", help="commit of this tree, where git cannot tell")
    return options
