"""One run: fresh objects, the requests through them, and the facts to stand beside the numbers."""

import platform
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from math import isfinite, nan
from typing import Any

import numpy as np

from hybridsim import __version__, metrics
from hybridsim.analysis.ideal import ceiling_token_hit_rate, ideal_hit_tokens
from hybridsim.build import Built, build_cost, build_scheduler, check_run, load_trace
from hybridsim.config import Run, RunConfig
from hybridsim.cost.base import CostModel
from hybridsim.policies.checkpoint.marked import check_marks
from hybridsim.records import BatchChange, RequestRecord, StepRecord
from hybridsim.request import Trace
from hybridsim.sim.arrivals import plan_arrivals
from hybridsim.sim.engine import simulate
from hybridsim.sweep.brackets import Best, Done, best_possible
from hybridsim.sweep.inputs import code_digest, fingerprints
from hybridsim.sweep.refusals import refusals
from hybridsim.sweep.store import RunResult
from hybridsim.traces import require_content

# The trie of a trace costs about as much as its parse; like the parse it is done once a process.
_IDEALS: dict[tuple[int, bool, bool, bool], np.ndarray] = {}
_HIT_METRICS = ("token_hit_rate", "token_match_rate", "request_hit_rate")


def execute(run: Run, on_progress: Callable[[int], None]) -> RunResult:
    """Do one run. `on_progress` gets the number of requests done since it was last called.

    Raises AssertionError when a law of the cache is broken; nothing is written here.
    """
    started_s = time.perf_counter()
    config = run.config
    inputs = fingerprints(config)  # before they are read: an edit meanwhile must not go unseen
    built = check_run(config)
    trace = load_trace(config)
    built.prepare(trace.requests, config.seed)
    ideal = ideals(config, built)
    cost = build_cost(config) if config.mode == "timed" else None
    records, steps, changes = _drive(config, built, trace, ideal, cost, _Batched(on_progress))
    _check_records(records)
    num_warmup = int(len(records) * config.trace.warmup)
    done = Done(built, trace.requests, num_warmup, records, changes)
    meta = _meta(run, built, trace, time.perf_counter() - started_s)
    meta["inputs"], meta["num_requests"] = inputs, len(records)
    meta["outcome"] = [*refusals(records), *built.outcome(), *_priced(cost)]
    meta["metrics"], meta["refused"] = _metrics(config, done, trace, ideal, steps or ())
    return RunResult(records, steps, meta)


def ideals(config: RunConfig, built: Built) -> np.ndarray:
    """What an infinite cache with this engine's rules would hit of each request, in tokens."""
    trace = load_trace(config)
    key = (id(trace), built.keeps_outputs, built.caps_last_token, built.keeps_last_output)
    if key not in _IDEALS:
        _IDEALS[key] = ideal_hit_tokens(
            trace.requests,
            keeps_outputs=built.keeps_outputs,
            caps_last_token=built.caps_last_token,
            keeps_last_output=built.keeps_last_output,
        )
    return _IDEALS[key]


class _Batched:
    """Passes progress on ten times a second at most, as increments."""

    def __init__(self, on_progress: Callable[[int], None]) -> None:
        self._on_progress = on_progress
        self._told, self._next_s = 0, 0.0

    def __call__(self, num_done: int, _total: int) -> None:
        now_s = time.monotonic()
        if now_s >= self._next_s:
            self._on_progress(num_done - self._told)
            self._told, self._next_s = num_done, now_s + 0.1


def _drive(
    config: RunConfig,
    built: Built,
    trace: Trace,
    ideal: np.ndarray,
    cost: CostModel | None,
    on_progress: _Batched,
) -> tuple[Sequence[RequestRecord], Sequence[StepRecord] | None, Sequence[BatchChange] | None]:
    if cost is None:
        return built.replay(trace.requests, ideal.tolist(), on_progress), None, None
    assert built.cache is not None
    result = simulate(
        trace.requests,
        built.cache,
        cost,
        build_scheduler(config),
        arrivals=config.arrivals.mode,
        rate_scale=config.arrivals.rate_scale,
        ideal_tokens=ideal.tolist(),
        progress=on_progress,
    )
    return result.records, result.steps, result.changes


def _priced(cost: CostModel | None) -> list[str]:
    """Where the step times come from."""
    return [] if cost is None else cost.notes()


def _check_records(records: Sequence[RequestRecord]) -> None:
    for record in records:
        if not 0 <= record.num_hit_tokens <= record.num_match_tokens <= record.num_prompt_tokens:
            raise AssertionError(f"law broken: hit <= match <= prompt in {record}")


def _metrics(
    config: RunConfig, done: Done, trace: Trace, ideal: np.ndarray, steps: Sequence[StepRecord]
) -> tuple[dict[str, Any], list[str]]:
    """The summary's numbers, and sentences about those that are refused."""
    summary = metrics.summarise(done.records, steps, warmup=config.trace.warmup)
    values: dict[str, Any] = {**summary, **done.built.usage()}
    ceiling = ceiling_token_hit_rate(trace.requests, ideal, done.num_warmup)
    values["ceiling_token_hit_rate"] = ceiling
    if config.bound and trace.has_content:
        values |= _bounds(done, values["token_hit_rate"])
    refused = []
    if not trace.has_content:
        for name in (*_HIT_METRICS, "ceiling_token_hit_rate"):
            values[name] = None
        refused.append("hit rates: the trace says how long prompts are, not what is in them")
    missing = [name for name, value in values.items() if value is None or not isfinite(value)]
    refused += [f"{name}: no request to take it from" for name in missing if trace.has_content]
    return {k: None if k in missing else v for k, v in values.items()}, refused


def _bounds(done: Done, hit: float) -> dict[str, float | None]:
    """What any policy could hit in this memory, at most and at least, and how far this one is.

    What the run has done can be done. Raises AssertionError if it beats the bound: then one of the
    two is wrong.
    """
    best = best_possible(done) if isfinite(hit) else Best(nan, nan)
    if hit > best.bound + 1e-9:
        raise AssertionError(
            f"law broken: token hit rate {hit} beats the proven bound {best.bound}"
        )
    return {
        "feasible_token_hit_rate": max(best.feasible, hit),
        "bound_token_hit_rate": best.bound,
        "regret": best.bound - hit,
    }


def _meta(run: Run, built: Built, trace: Trace, wall_s: float) -> dict[str, Any]:
    config, capacity = run.config, built.capacity
    return {
        "run": run.run_id,
        "versions": {
            "hybridsim": __version__,
            "python": platform.python_version(),
            "numpy": np.__version__,
            "code": code_digest(),
        },
        "seed": config.seed,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "wall_s": round(wall_s, 3),
        "trace": {
            "name": trace.name,
            "format": trace.format,
            "num_requests": len(trace.requests),
            "dropped": trace.dropped,
        },
        "num_warmup_requests": int(len(trace.requests) * config.trace.warmup),
        "assumptions": [
            *trace.assumptions,
            *capacity.notes,
            *built.notes,
            *_assumptions(config, built),
        ],
        "capacity": {
            "total_bytes": capacity.total_bytes,
            "kv_tokens": capacity.kv_tokens,
            "state_slots": capacity.state_slots,
            "num_blocks": capacity.num_blocks,
            "kv_bytes_per_token": built.model.kv_bytes_per_token,
            "state_bytes": built.model.state_bytes,
        },
        "laws_checked": [
            "every byte, slot and lock of the cache has one owner, and they add up",
            "hit <= match <= prompt tokens, for every request",
            "the token hit rate does not beat the proven bound, where one is given",
        ],
    }


def _assumptions(config: RunConfig, built: Built) -> list[str]:
    notes = []
    if config.bound:
        notes += _of_bound(config, built)
    if built.caps_last_token:
        notes.append("at least one prompt token is computed, so a hit is at most n - 1 tokens")
    if built.keeps_outputs:
        notes.append("generated tokens are cached where the trace tells their content")
    if config.mode == "replay":
        notes.append("replay: each request ends before the next one starts; there is no clock")
    elif config.arrivals.mode != "recorded":
        notes.append(
            "the ceiling takes requests in the order of the trace, "
            f"though arrivals.mode {config.arrivals.mode} may send them in another"
        )
    return notes


def _of_bound(config: RunConfig, built: Built) -> list[str]:
    """What the bound of this run is about."""
    notes = [built.limits.note] if built.limits is not None and built.limits.note else []
    if config.mode == "timed":
        notes.append(
            "bound: of all that could be kept while requests start, are preempted and end in the "
            "order of this run; other hits would make other batches"
        )
    return notes


# Policies that were told of a trace and took it: (trace, eviction policy).
_PREPARED: set[tuple[int, str]] = set()


def check_trace(config: RunConfig, trace: Trace, built: Built) -> None:
    """Whether the trace has what the run asks of it. Raises UserError.

    Replay answers with hit rates only, so it needs to know what is in the prompts; timed mode needs
    times; some policies need sessions, or marks.
    """
    check_marks(str(config.cache.checkpoint.name), trace.requests)
    if config.mode == "replay":
        require_content(trace)
    else:
        plan_arrivals(trace.requests, config.arrivals.mode, config.arrivals.rate_scale)
    key = (id(trace), str(config.cache.eviction))
    if key not in _PREPARED:
        built.prepare(trace.requests, config.seed)
        _PREPARED.add(key)
