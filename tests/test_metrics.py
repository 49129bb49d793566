"""Metrics against plain loops over the records, and by hand."""

from math import isnan, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybridsim.errors import UserError
from hybridsim.metrics import summarise
from hybridsim.records import MissReason, RequestRecord, StepRecord


def record(num_prompt_tokens: int, num_output_tokens: int, **fields: object) -> RequestRecord:
    return RequestRecord("r", None, num_prompt_tokens, num_output_tokens, **fields)  # type: ignore[arg-type]


def test_two_requests_by_hand() -> None:
    records = [
        record(
            100, 5, num_match_tokens=60, num_hit_tokens=40, arrival_s=1.0, scheduled_s=1.5,
            first_token_s=3.0, finished_s=5.0, num_preemptions=2,
        ),
        record(300, 1, arrival_s=2.0, scheduled_s=3.0, first_token_s=9.0, finished_s=9.0),
    ]  # fmt: skip
    steps = [
        StepRecord(1.0, 2.0, 1, 2, 0, 400, 0, 64, 0, 0),
        StepRecord(5.0, 4.0, 4, 1, 0, 0, 4, 0, 0, 0),
    ]
    metrics = summarise(records, steps)
    # Losses by reason have tests of their own.
    metrics = {name: v for name, v in metrics.items() if not name.startswith("lost_tokens_")}
    assert metrics == {
        "num_requests": 2,
        "num_prompt_tokens": 400,
        "num_refused": 0,
        "token_hit_rate": 40 / 400,
        "token_match_rate": 60 / 400,
        "request_hit_rate": 1 / 2,
        "num_evicted_tokens": 0,
        "num_evicted_states": 0,
        "num_checkpoints": 0,
        # 2 and 7 s to the first token; a quantile q of two values lies q of the way between.
        "ttft_s_mean": 4.5,
        "ttft_s_p50": 4.5,
        "ttft_s_p90": pytest.approx(6.5),
        "ttft_s_p99": pytest.approx(6.95),
        # Only the first request has later tokens: 4 of them in 2 s.
        "tpot_s_mean": 0.5,
        "tpot_s_p50": 0.5,
        "tpot_s_p90": 0.5,
        "tpot_s_p99": 0.5,
        # 4 and 7 s
        "e2e_s_mean": 5.5,
        "e2e_s_p50": 5.5,
        "e2e_s_p90": pytest.approx(6.7),
        "e2e_s_p99": pytest.approx(6.97),
        # 0.5 and 1 s
        "queue_s_mean": 0.75,
        "queue_s_p50": 0.75,
        "queue_s_p90": pytest.approx(0.95),
        "queue_s_p99": pytest.approx(0.995),
        # from the first arrival at 1 s to the last end at 9 s
        "throughput_requests_per_s": 2 / 8,
        "throughput_prompt_tokens_per_s": 400 / 8,
        "throughput_output_tokens_per_s": 6 / 8,
        "num_preemptions": 2,
        "num_steps": 5,
        "num_copied_bytes": 64,
        "busy_fraction": 6 / 8,
    }
    assert list(metrics)[:6] == [
        "num_requests",
        "num_prompt_tokens",
        "num_refused",
        "token_hit_rate",
        "token_match_rate",
        "request_hit_rate",
    ]


def test_replay_records_have_rates_and_no_times() -> None:
    metrics = summarise([record(10, 1, num_match_tokens=5, num_hit_tokens=5)])
    assert metrics["token_hit_rate"] == 0.5
    timed = ("ttft_s_", "tpot_s_", "e2e_s_", "queue_s_", "throughput_", "busy_", "num_steps")
    assert not any(name.startswith(timed) for name in metrics)


def test_no_record_gives_nan_rates() -> None:
    assert isnan(summarise([])["token_hit_rate"])


def test_refused_requests_count_in_rates_and_not_in_times() -> None:
    done = record(10, 1, num_hit_tokens=10, num_match_tokens=10, arrival_s=0.0, scheduled_s=0.0,
                  first_token_s=2.0, finished_s=2.0)  # fmt: skip
    refused = record(30, 1, miss_reason=MissReason.REFUSED, arrival_s=1.0)
    metrics = summarise([done, refused])
    assert (metrics["num_requests"], metrics["num_refused"]) == (2, 1)
    assert metrics["token_hit_rate"] == 10 / 40
    assert metrics["ttft_s_mean"] == 2.0
    assert metrics["throughput_requests_per_s"] == 0.5


def test_when_all_are_refused_the_times_are_nan() -> None:
    metrics = summarise([record(30, 1, miss_reason=MissReason.REFUSED, arrival_s=1.0)])
    assert isnan(metrics["ttft_s_mean"])
    assert isnan(metrics["throughput_requests_per_s"])


@pytest.mark.parametrize("warmup", [-0.1, 1.0, 2.0, nan])
def test_a_warmup_outside_its_range_is_an_error(warmup: float) -> None:
    with pytest.raises(UserError, match=r"trace\.warmup"):
        summarise([record(1, 1)], warmup=warmup)


COUNTS = st.integers(0, 1000)
ROWS = st.lists(st.tuples(COUNTS, COUNTS, st.floats(0, 9), st.floats(0, 9), st.floats(0, 9)))


@given(ROWS, st.floats(0, 0.99))
def test_metrics_equal_plain_loops(
    rows: list[tuple[int, int, float, float, float]], warmup: float
) -> None:
    records = []
    for num_hit, num_more, wait_s, prefill_s, decode_s in rows:
        arrival_s = float(len(records))
        first_s = arrival_s + wait_s + prefill_s
        records.append(
            record(
                num_hit + num_more + 1, num_more, num_match_tokens=num_hit, num_hit_tokens=num_hit,
                arrival_s=arrival_s, scheduled_s=arrival_s + wait_s, first_token_s=first_s,
                finished_s=first_s + decode_s,
            )
        )  # fmt: skip
    metrics = summarise(records, warmup=warmup)

    kept = [r for index, r in enumerate(records) if index >= int(len(records) * warmup)]
    if not kept:
        assert metrics["num_requests"] == 0
        return
    hits = total = 0
    ttfts, tpots = [], []
    for r in kept:
        hits += r.num_hit_tokens
        total += r.num_prompt_tokens
        ttfts.append(r.first_token_s - r.arrival_s)
        if r.num_output_tokens > 1:
            tpots.append((r.finished_s - r.first_token_s) / (r.num_output_tokens - 1))
    assert metrics["token_hit_rate"] == hits / total
    assert metrics["ttft_s_mean"] == pytest.approx(sum(ttfts) / len(ttfts))
    assert metrics["ttft_s_p50"] == pytest.approx(by_rank(ttfts, 0.5))
    assert metrics["ttft_s_p99"] == pytest.approx(by_rank(ttfts, 0.99))
    if tpots:
        assert metrics["tpot_s_p90"] == pytest.approx(by_rank(tpots, 0.9))
    else:
        assert isnan(metrics["tpot_s_p90"])


def by_rank(values: list[float], quantile: float) -> float:
    """The value at rank (n - 1) * quantile of the sorted list, linear between neighbours."""
    ordered = sorted(values)
    rank = (len(ordered) - 1) * quantile
    low = int(rank)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (rank - low)
