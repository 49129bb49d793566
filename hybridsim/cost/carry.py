"""`python -m hybridsim.cost.carry RANK --whole W --like L`: parts of a rank that were not measured.

Where a calibration of one rank stopped early, parts are carried over from profiles whose kernels
did the same work, program by program. They are kept apart from what was measured, named in every
run's notes, and give way to measurements as soon as the calibration is taken up again. Without
whole steps of the rank nothing is fitted: the parts are added as they are, with the error that this
makes for the whole model.
"""

import argparse
import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from hybridsim.cost.fitting import measured_s, predict
from hybridsim.cost.measured import Fit, MeasuredCost, parse_profile
from hybridsim.cost.profiled import Source
from hybridsim.errors import UserError
from hybridsim.models import AttentionSpec

Data = dict[str, Any]


def _scaled(point: Mapping[str, Any], at: list[int], factor: float) -> Data:
    times = {key: point[key] * factor for key in ("median_s", "low_s", "high_s")}
    return {"at": at, **times, "num_samples": point["num_samples"]}


def _table(source: Mapping[str, Any], part: str, name: str, points: list[Data]) -> Data:
    axes = source["operators"][part]["axes"]
    return {"axes": axes, "points": points, "from": name}


def _attention_of(data: Data) -> tuple[AttentionSpec, ...]:
    """Attention layers of the rank that a profile is of."""
    return tuple(Source.of(data).model.attention_layers)


def _require(holds: bool, part: str, why: str) -> None:
    if not holds:
        raise UserError(f"carried.{part}", f"cannot be carried over: {why}")


def prefill_of_4(rank: Data, whole: Data) -> Data:
    """From one chunk of the whole model: on a quarter of its heads four are as many programs.

    Each does the same work; four chunks read four prefixes of one KV head, one chunk one of all.
    """
    mine, theirs = _attention_of(rank), _attention_of(whole)
    same = len(mine) == len(theirs) and mine[0].head_dim == theirs[0].head_dim
    _require(
        same and 4 * mine[0].num_heads == theirs[0].num_heads,
        "full_prefill_of_4",
        "needs a model of equal layers with four times the heads",
    )
    points = whole["operators"]["full_prefill"]["points"]
    name = f"full_prefill of {whole['model']} with tp {whole['tp']}, of four times the heads"
    kept = [_scaled(point, point["at"], 1.0) for point in points]
    return _table(whole, "full_prefill", name, kept)


def _query_heads(spec: AttentionSpec) -> int:
    return spec.num_heads // spec.num_kv_heads


def decode(rank: Data, like: Data) -> Data:
    """From a model with more KV heads a layer and as many query heads on each.

    Programs are pairs of a request and a KV head: half the KV heads and twice the requests are the
    same. For fewer requests than that leaves, the least is taken, which is at most too slow.
    """
    mine, theirs = _attention_of(rank), _attention_of(like)
    heads = theirs[0].num_kv_heads // mine[0].num_kv_heads
    same = mine[0].head_dim == theirs[0].head_dim
    same = same and _query_heads(mine[0]) == _query_heads(theirs[0])
    _require(same, "full_decode", "needs equal head sizes and query heads a KV head")
    factor = len(mine) / len(theirs)
    points = []
    for point in like["operators"]["full_decode"]["points"]:
        requests, context = point["at"]
        points.append(_scaled(point, [requests * heads, context], factor))
        if requests == 1:
            points += [_scaled(point, [few, context], factor) for few in range(1, heads)]
    name = f"{like['model']}, with {heads} times the KV heads for as many times fewer requests"
    return _table(like, "full_decode", name, points)


def copy(rank: Data, like: Data) -> Data:
    """From a model with states of about the same size, by bytes."""
    factor = rank["state_bytes"] / like["state_bytes"]
    _require(0.5 < factor < 2, "copy", f"states differ by a factor of {factor:.2g}")
    points = [_scaled(p, p["at"], factor) for p in like["operators"]["copy"]["points"]]
    return _table(like, "copy", f"{like['model']}, by bytes", points)


def whole_rows(operator: Data) -> Data:
    """Only those values of the first axis for which every value of the second was measured."""
    points = operator["points"]
    widest = max(sum(p["at"][0] == q["at"][0] for q in points) for p in points)
    kept = [p for p in points if sum(p["at"][0] == q["at"][0] for q in points) == widest]
    return {**operator, "points": kept}


def complete(rank: Data, whole: Data, like: Data) -> Data:
    """The profile of the rank with what it lacks carried over; what it has stays as it is."""
    measured = {name: whole_rows(operator) for name, operator in rank["operators"].items()}
    carried = {
        "full_prefill_of_4": prefill_of_4(rank, whole),
        "full_decode": decode(rank, like),
        "copy": copy(rank, like),
    }
    lacking = {name: table for name, table in carried.items() if name not in measured}
    done = {**rank, "operators": measured, "carried": lacking}
    return done if rank["fit_steps"] else {**done, "fit": asdict(Fit(error=sum_error(whole)))}


def sum_error(data: Data) -> float:
    """Root mean square of the relative error of the plain sum of parts, on a profile's steps."""
    plain = MeasuredCost(replace(parse_profile(data, "profile"), fit=Fit()))
    error = predict(plain, data["fit_steps"]) / measured_s(data["fit_steps"]) - 1
    return float(np.sqrt(np.mean(error**2)))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m hybridsim.cost.carry", description=__doc__)
    parser.add_argument("rank", type=Path, help="profile of a rank; completed in place")
    parser.add_argument("--whole", type=Path, required=True, help="profile of the whole model")
    parser.add_argument("--like", type=Path, required=True, help="profile of equal KV heads")
    options = parser.parse_args()
    files = (options.rank, options.whole, options.like)
    done = complete(*(json.loads(path.read_text()) for path in files))
    options.rank.write_text(json.dumps(done, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
