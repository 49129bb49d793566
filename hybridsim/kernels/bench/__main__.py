"""`python -m hybridsim.kernels.bench --out table.json`: floors first, then check and time rows."""

import argparse
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

import torch

from hybridsim.kernels.bench import memory_cases, probe_cases, recurrence_cases
from hybridsim.kernels.bench.case import Case, disagreement
from hybridsim.kernels.bench.floors import Floors, measure_floors
from hybridsim.kernels.bench.timing import Timing, time_eager, time_graph
from hybridsim.kernels.console import say
from hybridsim.kernels.machine import check_out, describe_machine, require_gpu, save_json
from hybridsim.terminal import errors_in_one_line

GROUPS: dict[str, Callable[[bool, bool], Iterator[Case]]] = {
    "copy": memory_cases.copy_cases,
    "recurrence-prefill": recurrence_cases.prefill_cases,
    "recurrence-decode": recurrence_cases.decode_cases,
    "attention-prefill": memory_cases.prefill_cases,
    "attention-decode": memory_cases.decode_cases,
    "conv": recurrence_cases.conv_cases,
    "probes": probe_cases.probe_cases,
}


def time_version(case: Case, name: str) -> tuple[Timing, str]:
    """Graph replays where the version can be captured, else launches from Python; says which."""
    calls = [case.versions[name](100 * i) for i in range(case.rotate)]
    try:
        return time_graph(calls), "graph"
    except RuntimeError:
        if name == "ours":
            raise
        torch.cuda.synchronize()
        return time_eager(calls), "eager"


def run_case(case: Case, floors: Floors) -> dict[str, object]:
    """A row: correctness first, then times of all versions."""
    gap = disagreement(case)
    if gap > case.tolerance:
        raise RuntimeError(f"{case.op} {case.label}: versions disagree by {gap:.2e}")
    floor_s = floors.floor_s(case.num_bytes, case.num_flops)
    row: dict[str, object] = {"op": case.op, **case.shape, "floor_s": floor_s, "disagreement": gap}
    times: dict[str, float] = {}
    for name in case.versions:
        timing, how = time_version(case, name)
        times[name] = timing.median_s
        row[name] = asdict(timing) | {"how": how}
    row["share_of_floor"] = floor_s / times["ours"]
    row["ratio_to_rival"] = {
        name: times["ours"] / seconds for name, seconds in times.items() if name != "ours"
    }
    if case.target is not None:
        kind, value = case.target
        row["target"] = f"{kind} {value}"
        if kind == "floor":
            row["meets_target"] = floor_s / times["ours"] >= value
        elif kind in times:
            row["meets_target"] = times["ours"] / times[kind] <= value
    return row


def line_of(row: dict[str, object]) -> str:
    """One line of the printed table."""
    skip = {"op", "floor_s", "disagreement", "share_of_floor", "ratio_to_rival", "target",
            "meets_target"}  # fmt: skip
    shape, times = [], []
    for key, value in row.items():
        if isinstance(value, dict) and key != "ratio_to_rival":
            times.append(f"{key} {value['median_s'] * 1e6:.1f}us")
        elif key not in skip:
            shape.append(f"{key}={value}")
    verdict = {True: "ok", False: "MISS", None: ""}[row.get("meets_target")]  # type: ignore[index]
    name = f"{row['op']} {' '.join(shape)}"
    return f"{name:62s} floor {row['share_of_floor']:5.0%}  {'  '.join(times)}  {verdict}"


def measure(options: argparse.Namespace) -> None:
    """Time the groups that the options name; UserError without a GPU or for a wrong --out."""
    require_gpu()
    if options.out is not None:
        check_out(options.out)
    floors = measure_floors()
    say(f"copy {floors.copy_bytes_per_s / 1e12:.2f} TB/s, "
        f"matmul {floors.matmul_flops_per_s / 1e12:.0f} TFLOP/s")  # fmt: skip
    rows: list[dict[str, object]] = []
    table = {"machine": describe_machine(options.commit), "floors": asdict(floors), "rows": rows}
    for group in options.only:
        for case in GROUPS[group](options.quick, not options.no_rivals):
            try:
                rows.append(run_case(case, floors))
                say(line_of(rows[-1]))
            except Exception as error:  # one broken rival must not cost the other rows
                text = f"{type(error).__name__}: {error}"
                rows.append({"op": case.op, **case.shape, "error": text})
                say(f"{case.op} {case.label}: {text}"[:300])
            torch.cuda.empty_cache()
            if options.out is not None:  # after each row: a run that is stopped keeps the others
                save_json(options.out, table)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m hybridsim.kernels.bench", description=__doc__)
    parser.add_argument("--out", type=Path, help="JSON file to write")
    parser.add_argument("--quick", action="store_true", help="two shapes an operator")
    parser.add_argument("--no-rivals", action="store_true", help="do not time torch and fla")
    parser.add_argument("--commit", default="", help="commit of this tree, where git cannot tell")
    parser.add_argument("--only", nargs="*", choices=list(GROUPS), default=list(GROUPS))
    options = parser.parse_args()
    with errors_in_one_line():
        measure(options)


if __name__ == "__main__":
    main()
