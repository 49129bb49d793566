"""From the records of a run to the numbers of its summary row. Names are the contract."""

from collections.abc import Sequence
from math import nan

import numpy as np
from numpy.typing import NDArray

from hybridsim.errors import UserError
from hybridsim.records import LOSS_REASONS, MissReason, RequestRecord, StepRecord

Metrics = dict[str, float]
FloatArray = NDArray[np.float64]

_QUANTILES = {"p50": 0.50, "p90": 0.90, "p99": 0.99}


def measured(records: Sequence[RequestRecord], warmup: float) -> Sequence[RequestRecord]:
    """The records that count: the first `warmup` (a fraction of all, in [0, 1)) are left out."""
    if not 0 <= warmup < 1:
        raise UserError("trace.warmup", f"{warmup} is out of range; allowed: 0 <= warmup < 1")
    return records[int(len(records) * warmup) :]


def summarise(
    records: Sequence[RequestRecord],
    steps: Sequence[StepRecord] = (),
    *,
    warmup: float = 0.0,
) -> Metrics:
    """Metrics by name, in the order in which tables show them.

    records: in the order of the requests; without times (replay) only rates and counts come back.
    steps: all steps of a timed run; what they sum up is not subject to `warmup`.
    A rate or time over no request at all is nan.
    """
    kept = measured(records, warmup)
    metrics = _rates(kept)
    if any(record.arrival_s is not None for record in kept):
        metrics |= _times(kept)
    if steps:
        metrics |= _step_sums(steps)
    return metrics


def _rates(records: Sequence[RequestRecord]) -> Metrics:
    num_prompt_tokens = _total(records, "num_prompt_tokens")
    num_hits = sum(record.num_hit_tokens > 0 for record in records)
    return {
        "num_requests": len(records),
        "num_prompt_tokens": num_prompt_tokens,
        "num_refused": sum(record.miss_reason == MissReason.REFUSED for record in records),
        "token_hit_rate": _ratio(_total(records, "num_hit_tokens"), num_prompt_tokens),
        "token_match_rate": _ratio(_total(records, "num_match_tokens"), num_prompt_tokens),
        "request_hit_rate": _ratio(num_hits, len(records)),
        "num_evicted_tokens": _total(records, "num_evicted_tokens"),
        "num_evicted_states": _total(records, "num_evicted_states"),
        "num_checkpoints": _total(records, "num_checkpoints"),
        **_losses(records),
    }


def _losses(records: Sequence[RequestRecord]) -> Metrics:
    """Tokens that an infinite cache would have hit as well, summed by reason."""
    return {
        f"lost_tokens_{reason}": sum(record.lost_tokens.get(reason, 0) for record in records)
        for reason in LOSS_REASONS
    }


def _times(records: Sequence[RequestRecord]) -> Metrics:
    """Seconds over the requests that finished.

    ttft: arrival to first token. tpot: from the first to the last token, per token after the
    first; requests with one output token have none. e2e: arrival to end. queue: arrival to first
    admission. Throughput counts from the first arrival to the last end.
    """
    done = [record for record in records if record.finished_s is not None]
    arrival_s, scheduled_s = _column(done, "arrival_s"), _column(done, "scheduled_s")
    first_token_s, finished_s = _column(done, "first_token_s"), _column(done, "finished_s")
    num_later_tokens = _column(done, "num_output_tokens") - 1
    later = num_later_tokens > 0
    metrics: Metrics = {}
    metrics |= _spread("ttft_s", first_token_s - arrival_s)
    metrics |= _spread("tpot_s", (finished_s - first_token_s)[later] / num_later_tokens[later])
    metrics |= _spread("e2e_s", finished_s - arrival_s)
    metrics |= _spread("queue_s", scheduled_s - arrival_s)
    span_s = float(finished_s.max() - arrival_s.min()) if done else 0.0
    metrics["throughput_requests_per_s"] = _ratio(len(done), span_s)
    for kind in ("prompt", "output"):
        num_tokens = _total(done, f"num_{kind}_tokens")
        metrics[f"throughput_{kind}_tokens_per_s"] = _ratio(num_tokens, span_s)
    metrics["num_preemptions"] = _total(records, "num_preemptions")
    return metrics


def _step_sums(steps: Sequence[StepRecord]) -> Metrics:
    """busy_fraction: share of the time from the first step's start to the last one's end."""
    busy_s = sum(step.duration_s for step in steps)
    span_s = steps[-1].start_s + steps[-1].duration_s - steps[0].start_s
    return {
        "num_steps": sum(step.num_steps for step in steps),
        "num_copied_bytes": sum(step.num_copied_bytes for step in steps),
        "busy_fraction": _ratio(busy_s, span_s),
    }


def _spread(name: str, values_s: FloatArray) -> Metrics:
    """Mean and quantiles (linear between neighbours)."""
    if not len(values_s):
        return dict.fromkeys((f"{name}_{suffix}" for suffix in ("mean", *_QUANTILES)), nan)
    quantiles = np.quantile(values_s, list(_QUANTILES.values()))
    by_suffix = zip(_QUANTILES, quantiles, strict=True)
    return {f"{name}_mean": float(values_s.mean())} | {
        f"{name}_{suffix}": float(value) for suffix, value in by_suffix
    }


def _column(records: Sequence[RequestRecord], name: str) -> FloatArray:
    return np.array([getattr(record, name) for record in records], dtype=np.float64)


def _total(records: Sequence[RequestRecord], name: str) -> int:
    return sum(getattr(record, name) for record in records)


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else nan
