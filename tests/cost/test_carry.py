"""Parts carried over from equal work: the arithmetic, and the shipped rank's own points."""

import json

import pytest

from hybridsim.cost.carry import complete, copy, decode, prefill_of_4, sum_error, whole_rows
from hybridsim.cost.measured import MeasuredCost, parse_profile, read_profile
from hybridsim.cost.profiles import shipped_profiles
from hybridsim.errors import UserError

WHOLE = ("h200", "qwen3-next-80b-a3b", 1)
RANK = ("h200", "qwen3-next-80b-a3b", 4)
LIKE = ("h200", "qwen3.5-0.8b", 1)


def point(at, seconds):
    return {"at": list(at), "median_s": seconds, "low_s": seconds, "high_s": seconds,
            "num_samples": 7}  # fmt: skip


def profile(key, **operators):
    """A profile of a model with points of some parts only."""
    parts = {name: {"axes": ["a", "b"][: len(points[0]["at"])], "points": points}
             for name, points in operators.items()}  # fmt: skip
    return {"model": key[1], "tp": key[2], "state_bytes": 100, "operators": parts, "fit_steps": []}


def test_decode_takes_half_the_requests_of_twice_the_kv_heads():
    """6 layers of 2 KV heads that take (requests x 2 heads x context) ns each, for 12 layers of one
    head: 12 x requests x context ns, and at one request what two take."""
    grid = [(n, c) for n in (1, 2, 8) for c in (100, 1000)]
    like = profile(LIKE, full_decode=[point(at, 6e-9 * 2 * at[0] * at[1]) for at in grid])
    found = {tuple(p["at"]): p["median_s"] for p in decode(profile(RANK), like)["points"]}
    assert sorted(found) == [(n, c) for n in (1, 2, 4, 16) for c in (100, 1000)]
    for (requests, context), seconds in found.items():
        assert seconds == pytest.approx(12e-9 * max(requests, 2) * context)


def test_four_chunks_take_what_one_takes_on_four_times_the_heads():
    points = [point((64, 0), 1e-3), point((128, 0), 3e-3)]
    carried = prefill_of_4(profile(RANK), profile(WHOLE, full_prefill=points))
    assert carried["points"] == points
    assert "four times the heads" in carried["from"]


def test_copies_go_by_bytes():
    like = profile(LIKE, copy=[point((1,), 1e-5), point((8,), 7e-5)]) | {"state_bytes": 80}
    assert copy(profile(RANK), like)["points"][1]["median_s"] == pytest.approx(8.75e-5)


@pytest.mark.parametrize(
    ("carry", "part", "says"),
    [
        (lambda: prefill_of_4(profile(WHOLE), profile(LIKE)), "full_prefill_of_4", "equal layers"),
        (lambda: decode(profile(WHOLE), profile(LIKE)), "full_decode", "query heads"),
        (lambda: copy(profile(RANK), profile(LIKE) | {"state_bytes": 9}), "copy", "factor of 11"),
    ],
)
def test_work_that_is_not_equal_is_refused(carry, part, says):
    with pytest.raises(UserError, match=says) as caught:
        carry()
    assert caught.value.place == f"carried.{part}"


def test_values_of_which_points_are_missing_are_left_out():
    operator = {"axes": ["a", "b"], "points": [point(at, 1.0) for at in ((1, 0), (1, 5), (2, 0))]}
    assert [p["at"] for p in whole_rows(operator)["points"]] == [[1, 0], [1, 5]]


def shipped(key):
    return json.loads(shipped_profiles()[key].read_text())


def test_the_shipped_rank_is_what_the_program_makes_of_what_was_measured():
    rank = shipped(RANK)
    measured = {key: value for key, value in rank.items() if key not in ("carried", "fit")}
    assert complete(measured, shipped(WHOLE), shipped(LIKE)) == rank
    assert rank["fit"]["error"] == sum_error(shipped(WHOLE)) < 0.03


def test_what_is_carried_gives_way_to_what_is_measured():
    rank = shipped(RANK)
    assert set(parse_profile(rank, "p").carried) == {"full_prefill_of_4", "full_decode", "copy"}
    rank["operators"]["copy"] = {"axes": ["slots"], "points": [point((1,), 0.5), point((8,), 0.6)]}
    later = parse_profile(rank, "p")
    assert set(later.carried) == {"full_prefill_of_4", "full_decode"}
    assert later.tables["copy"].at(1) == 0.5


def test_four_carried_chunks_take_from_one_to_four_times_what_one_does():
    """Of this rank one chunk was measured: four take no less, and about no more than one by one.

    Up to 12 % more, since kernels choose blocks of queries by the heads and tokens at hand.
    """
    cost = MeasuredCost(read_profile(shipped_profiles()[RANK]))
    alone, four = (cost.profile.tables[x] for x in ("full_prefill", "full_prefill_of_4"))
    for new in alone.first:
        for prefix in alone.second:
            one = alone.power_row(new).at(prefix)
            assert one <= four.power_row(new).at(prefix) * 1.02
            assert four.power_row(new).at(prefix) <= 4 * one * 1.12


def test_query_heads_on_a_kv_head_hardly_matter_to_decoding():
    """Why decoding may be carried over: layer by layer, 4 and 8 query heads on each of two KV heads
    take the same within 9 % at every measured point."""

    def points(key):
        operator = shipped(key)["operators"]["full_decode"]
        return {tuple(point["at"]): point["median_s"] for point in operator["points"]}

    eight, four = points(WHOLE), points(LIKE)
    assert eight.keys() == four.keys()
    for at, seconds in eight.items():
        assert seconds / 12 == pytest.approx(four[at] / 6, rel=0.09), at
