"""`python -m hybridsim.cost.cross`: the roofline on held-out steps, of models it was not fitted on.

For every profile that ships: ceilings as shipped (fitted on all models), fitted on all models but
this one, and fitted on each other model alone; judged on the held-out steps of this one.
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, fields
from pathlib import Path

import numpy as np

from hybridsim.cost.ceilings import CARD, KERNELS, fit_ceilings, predictions
from hybridsim.cost.efficiency import Efficiency, parse_efficiency
from hybridsim.cost.file_shapes import read_kernels, read_steps
from hybridsim.cost.fitting import Judgement, Step, judge, measured_s
from hybridsim.cost.gpus import GPUS
from hybridsim.cost.profiled import Bench, Source, shipped_sources
from hybridsim.cost.relative import Rows
from hybridsim.errors import UserError
from hybridsim.files import write_csv
from hybridsim.terminal import errors_in_one_line

COLUMNS = ("profile", "fitted_on", *(field.name for field in fields(Judgement)))


def judge_roofline(source: Source, efficiency: Efficiency, steps: Sequence[Step]) -> Judgement:
    """Errors of the roofline with these ceilings on measured steps of the source's model."""
    predicted = [seconds for _, seconds in predictions(GPUS[CARD], source, efficiency, steps)]
    return judge(np.array(predicted), measured_s(steps))


def crossed(
    sources: Mapping[str, Source], held_out: Mapping[str, Sequence[Step]], rows: Rows
) -> Iterator[tuple[str, str, Judgement]]:
    """(profile, models that the ceilings were fitted on, errors) for each profile with steps."""
    models = {name: source.model.name for name, source in sources.items()}
    for name, steps in held_out.items():
        others = sorted(set(models.values()) - {models[name]})
        chosen = {"all": list(sources)}
        if len(others) > 1:
            chosen["the others"] = [one for one in sources if models[one] in others]
        for other in others:
            chosen[other] = [one for one in sources if models[one] == other]
        for fitted_on, names in chosen.items():
            bench = Bench(GPUS[CARD], [sources[one] for one in names])
            efficiency = parse_efficiency(fit_ceilings(bench, rows))
            yield name, fitted_on, judge_roofline(sources[name], efficiency, steps)


def read_held_out(
    sources: Mapping[str, Source], folder: Path
) -> dict[str, list[dict[str, object]]]:
    """Held-out steps of those profiles that have some; UserError where none has."""
    paths = {name: folder / f"{name}.steps.json" for name in sources}
    held_out = {
        name: read_steps(path, sources[name].model.name, sources[name].model.tp)
        for name, path in paths.items()
        if path.exists()
    }
    if not held_out:
        allowed = ", ".join(path.name for path in paths.values())
        raise UserError("--folder", f"{str(folder)!r} has no held-out steps; allowed: {allowed}")
    return held_out


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m hybridsim.cost.cross", description=__doc__)
    parser.add_argument("--kernels", type=Path, default=KERNELS, help="table of single kernels")
    parser.add_argument(
        "--folder", type=Path, default=Path("results/calibration"),
        help="has <profile>.steps.json; roofline.csv is written there",
    )  # fmt: skip
    options = parser.parse_args()
    sources = shipped_sources(CARD)
    with errors_in_one_line():
        rows = read_kernels(options.kernels, "--kernels")
        found = crossed(sources, read_held_out(sources, options.folder), rows)
        table = [(name, on, *map(_short, astuple(result))) for name, on, result in found]
        write_csv(options.folder / "roofline.csv", [COLUMNS, *table])


def _short(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.5f}"


if __name__ == "__main__":
    main()
