"""The machine line of every measured file, and how such files are written."""

import json
import subprocess
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

from hybridsim.errors import UserError
from hybridsim.files import make_folder, write_whole


def _output(*command: str) -> str:
    """First line of a command's output; empty where it cannot run."""
    try:
        text = subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=20
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return ""
    return text.strip().splitlines()[0] if text.strip() else ""


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def describe_machine(commit: str = "") -> dict[str, str]:
    """Names and versions a reader needs to trust a number; empty text where unknown."""
    driver = _output("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")
    return {
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else "",
        "driver": driver,
        "torch": torch.__version__,
        "triton": _version("triton"),
        "fla": _version("fla-core"),
        "commit": commit or _output("git", "rev-parse", "--short", "HEAD"),
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
    }


def require_gpu() -> None:
    """UserError on a machine without one: what these programs measure."""
    if not torch.cuda.is_available():
        raise UserError("gpu", "torch finds no CUDA GPU; what is measured is the one it runs on")


def save_json(path: Path, data: object, indent: int | None = 1) -> None:
    """Write a file whole: an interruption leaves the old one. WriteError where it cannot be."""
    separators = None if indent else (",", ":")
    write_whole(path, json.dumps(data, indent=indent, separators=separators).encode())


def check_out(path: Path) -> None:
    """UserError now, not after minutes of measuring, where `path` cannot be a file to write.

    Its folder is made.
    """
    if path.exists() and not path.is_file():
        raise UserError(str(path), "cannot be written; allowed: the path of a file")
    make_folder(path.parent, str(path))
