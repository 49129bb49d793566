"""Measured profiles that ship with hybridsim, one JSON file a GPU, model and number of ranks."""

from pathlib import Path

_FOLDER = Path(__file__).parent


def shipped_profiles() -> dict[tuple[str, str, int], Path]:
    """(GPU name, model name, tp) -> file: `<gpu>.<model>.json`, or `<gpu>.<model>.tp<N>.json`."""
    return {_key(path.name.removesuffix(".json")): path for path in sorted(_FOLDER.glob("*.json"))}


def _key(name: str) -> tuple[str, str, int]:
    gpu, model = name.split(".", 1)
    base, _, last = model.rpartition(".tp")
    return (gpu, base, int(last)) if base and last.isdigit() else (gpu, model, 1)
