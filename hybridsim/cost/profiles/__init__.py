"""Measured profiles that ship with hybridsim, one JSON file a GPU and model."""

from pathlib import Path

_FOLDER = Path(__file__).parent


def shipped_profiles() -> dict[tuple[str, str], Path]:
    """(GPU name, model name) -> file. A file's name is `<gpu>.<model>.json`."""
    named = {path.name.removesuffix(".json"): path for path in sorted(_FOLDER.glob("*.json"))}
    return {(name.split(".", 1)[0], name.split(".", 1)[1]): path for name, path in named.items()}
