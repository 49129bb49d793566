"""Who may import whom: a file imports only from floors below its own."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

# Folder or file directly under hybridsim/ -> floor. What stands beside the house has floor None.
FLOORS: dict[str, float | None] = {
    "errors": 0, "units": 0, "request": 0, "records": 0, "models": 0, "trie": 0, "config": 0,
    "metrics": 0, "files": 0, "docs": 0, "terminal": 0, "drawing": 0, "ticks": 0,
    "traces": 1, "policies": 1, "cost": 1, "report": 1,
    "analysis": 2, "cache": 2, "engines": 2,
    "sim": 3,
    "build": 4, "sweep": 4.5, "plan": 4.5,  # one floor, but these stand on build
    "cli": 5, "__main__": 6,
    "kernels": None, "twin": None,
}  # fmt: skip

# An interface is no knowledge: these may be seen from the same floor or from below.
# cost.base: what a step is, so that the scheduler can describe one.
SEAMS = {"cost.base", "policies.base", "cache.base"}
ONLY_IN = {
    "simpy": {"sim/engine.py"},
    "torch": {"kernels", "twin"},
    "triton": {"kernels", "twin"},
    "ray": {"sweep/on_ray.py"},
    "typer": {"cli"},
}

PACKAGE = Path(__file__).resolve().parent.parent / "hybridsim"
FILES = sorted(PACKAGE.rglob("*.py"))


def imports(path: Path) -> Iterator[str]:
    """Modules that a file imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            assert node.module is not None
            if node.module == "hybridsim":
                yield from (f"hybridsim.{alias.name}" for alias in node.names)
            else:
                yield node.module


def room(module: str) -> str:
    return module.removeprefix("hybridsim.").split(".")[0]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_file_imports_only_from_below(path: Path) -> None:
    mine = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    if mine == "__init__":
        return
    floor = FLOORS[mine]  # a KeyError here: give the new folder a floor
    for module in imports(path):
        if not module.startswith("hybridsim.") or module == "hybridsim.__version__":
            continue
        theirs = room(module)
        if theirs == mine or module.removeprefix("hybridsim.") in SEAMS:
            continue
        if floor is None:
            # kernels meet the rest through files only, but may know shapes, errors and units
            assert FLOORS[theirs] == 0, f"{mine} imports {module}"
            continue
        below = FLOORS[theirs]
        assert below is not None, f"{mine} imports {module}, which stands beside the house"
        same_ground = floor == below == 0
        assert below < floor or same_ground, f"floor {floor}: {mine} imports {module} ({below})"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_heavy_libraries_stay_in_their_rooms(path: Path) -> None:
    here = path.relative_to(PACKAGE)
    for module in imports(path):
        homes = ONLY_IN.get(module.split(".")[0])
        if homes is not None:
            assert {str(here), here.parts[0]} & homes, f"{here} imports {module}"
