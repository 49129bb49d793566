"""`hybridsim calibrate`: starts the calibration program, which stands beside the simulator."""

import signal
import subprocess
import sys

import typer

_HELP = """Measure a cost profile of a model on this machine's GPU (needs torch and triton).

Takes the options of python -m hybridsim.kernels.calibrate; --help lists them.

Example: hybridsim calibrate --model qwen3.5-0.8b --out profile.json
"""
_PROGRAM = "hybridsim.kernels.calibrate"


def register(app: typer.Typer) -> None:
    """Add the command. All options, --help among them, are the program's own."""
    app.command(
        "calibrate",
        help=_HELP,
        add_help_option=False,
        context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    )(_calibrate)


def _calibrate(context: typer.Context) -> None:
    """A process of its own: simulator and kernels do not import each other."""
    command = [sys.executable, "-m", _PROGRAM, *context.args]
    if {"--help", "-h"} & set(context.args):
        typer.echo(subprocess.run(command, capture_output=True, text=True, check=False).stdout)
        return
    raise typer.Exit(_exit_code(command))


def _exit_code(command: list[str]) -> int:
    """Of a program that hears Ctrl-C as this one does: it says what is kept, so wait for it."""
    program = subprocess.Popen(command)
    heard = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        return program.wait()
    finally:
        signal.signal(signal.SIGINT, heard)
