"""The measured cost model: tables, sums over decode steps, the fit, and bad profiles."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybridsim.cost.allreduce import Allreduce
from hybridsim.cost.base import PrefillChunk
from hybridsim.cost.break_even import break_even_tokens
from hybridsim.cost.fitting import fit
from hybridsim.cost.measured import MeasuredCost, parse_profile, read_profile
from hybridsim.cost.tables import Curve, read_table
from hybridsim.errors import UserError


def operator(axes, function):
    """A table of exact values of `function` over the product of `axes`."""
    points = [
        {"at": list(at), "median_s": function(*at), "low_s": function(*at) * 0.99,
         "high_s": function(*at) * 1.01, "num_samples": 7}
        for at in product(*axes)
    ]  # fmt: skip
    return {"axes": [str(i) for i in range(len(axes))], "points": points}


def profile_data():
    """A GPU whose parts take simple times, so that a step can be computed by hand."""
    tokens, counts = (16, 64, 256, 1024, 4096), (1, 2, 4, 8)
    operators = {
        "dense": operator([(1, 100, 1000, 8000)], lambda n: 1e-3 + 1e-6 * n),
        "head": operator([(1, 100, 512)], lambda n: 1e-4 + 1e-7 * n),
        "recurrent_prefill": operator([tokens, counts], lambda n, k: 1e-6 * n * k),
        "recurrent_decode": operator([(1, 64, 512)], lambda n: 1e-5 * n),
        "full_prefill": operator([tokens, (0, 1000, 32000)], lambda n, p: 1e-9 * n * (p + 1000)),
        "full_prefill_of_4": operator(
            [tokens, (0, 1000, 32000)], lambda n, p: 2e-9 * n * (p + 1000)
        ),
        "full_decode": operator([(1, 64, 512), (100, 1000, 20000)], lambda n, c: 1e-9 * n * c),
        "copy": operator([(1, 8, 64)], lambda n: 1e-5 * n),
    }  # fmt: skip
    return {
        "format": "hybridsim-profile-1", "model": "m", "tp": 1,
        "machine": {"gpu": "G", "date": "D"}, "state_bytes": 1000,
        "operators": operators, "fit_steps": [],
    }  # fmt: skip


@pytest.fixture
def cost():
    return MeasuredCost(parse_profile(profile_data(), "p"))


def test_a_decode_step_is_the_sum_of_its_parts(cost):
    """10 requests at 500 tokens: 1.01 ms dense + 0.101 ms head + 0.1 ms states + 5 us attention."""
    assert cost.step_s((), 10, 5000) == pytest.approx(1.01e-3 + 1.01e-4 + 1e-4 + 5e-6)
    assert cost.step_s((), 0, 0) == 0.0
    assert not cost.extrapolated


def test_a_prefill_step_reads_its_own_tables(cost):
    """1024 new after 1000: 2.024 ms + 0.1001 ms + 1.024 ms scan + 2.048 ms attention + copy."""
    seconds = cost.step_s([PrefillChunk(1024, 1000)], 0, 0, copied_bytes=2000)
    assert seconds == pytest.approx(2.024e-3 + 1.001e-4 + 1.024e-3 + 2.048e-3 + 2e-5)


def test_scans_of_unequal_chunks_run_side_by_side(cost):
    """Where time is proportional to all tokens, chunks of 64 and 1024 take what 1088 tokens do."""
    parts = cost.parts_s([PrefillChunk(64, 0), PrefillChunk(1024, 0)], 0, 0)
    assert parts["recurrent_prefill"] == pytest.approx(1.088e-3)


def test_attention_of_chunks_takes_the_longest_alone_or_what_each_adds(cost):
    """Alone 1024 after 1000 take 2.048 ms and 64 after none 64 us. Four of the first at once take
    4.096 ms; two, starting from the 32 us of the least four, 32 us + 2 (4.064 ms / 4) = 2.064 ms;
    one and a small one less than one alone."""
    large, small = PrefillChunk(1024, 1000), PrefillChunk(64, 0)

    def attention_s(*chunks):
        return cost.parts_s(chunks, 0, 0)["full_prefill"]

    assert attention_s(large) == attention_s(large, small) == pytest.approx(2.048e-3)
    assert attention_s(large, large, large, large) == pytest.approx(4.096e-3)
    assert attention_s(large, large) == pytest.approx(2.064e-3)


def test_a_part_of_a_block_costs_a_whole_one(cost):
    """65 tokens scan and attend as 128 do, but pass matrix products as 65."""
    small, whole = (cost.parts_s([PrefillChunk(n, 500)], 0, 0) for n in (65, 128))
    for part in ("recurrent_prefill", "full_prefill"):
        assert small[part] == whole[part]
    assert whole["dense"] - small["dense"] == pytest.approx(63e-6)


@given(st.integers(1, 600), st.integers(1, 400), st.integers(0, 30000), st.integers(0, 10**6))
def test_many_decode_steps_equal_one_by_one(requests, steps, context, extra):
    cost = MeasuredCost(parse_profile(profile_data(), "p"))
    start = requests * context + extra % requests
    total = sum(cost.step_s((), requests, start + i * requests) for i in range(steps))
    assert cost.decode_steps_s(steps, requests, start) == pytest.approx(total, rel=1e-9)


@given(
    st.lists(st.integers(0, 50), min_size=2, max_size=6, unique=True).map(sorted),
    st.floats(-10, 60), st.integers(0, 70), st.data(),
)  # fmt: skip
def test_curve_sums_equal_the_sum_of_their_values(knots, start, count, data):
    values = data.draw(st.lists(st.floats(0.1, 9), min_size=len(knots), max_size=len(knots)))
    curve = Curve(tuple(map(float, knots)), tuple(values))
    expected = sum(curve.at(start + i) for i in range(count))
    assert curve.sum_at(start, count) == pytest.approx(expected, abs=1e-9)


def test_lookups_off_the_grid_are_counted_and_told(cost):
    cost.step_s((), 600, 600 * 50)
    assert set(cost.extrapolated) == {"head", "recurrent_decode", "full_decode"}
    assert any("full_decode" in note for note in cost.notes())


# The ends of each axis of `profile_data`.
EDGES = {
    "dense": [(1, 8000)], "head": [(1, 512)], "recurrent_prefill": [(16, 4096), (1, 8)],
    "recurrent_decode": [(1, 512)], "full_prefill": [(16, 4096), (0, 32000)],
    "full_prefill_of_4": [(16, 4096), (0, 32000)], "full_decode": [(1, 512), (100, 20000)],
    "copy": [(1, 64)],
}  # fmt: skip


@given(
    st.lists(st.tuples(st.integers(1, 9000), st.integers(0, 40000)), max_size=9),
    st.integers(0, 700), st.integers(0, 30000), st.integers(0, 100),
)  # fmt: skip
def test_every_lookup_off_the_grid_is_counted_and_no_other(chunks, decodes, context, copies):
    """Chunks count in whole blocks of 64, or from 16 on; several in both tables of attention."""
    blocks = [max(n, 16) if n <= 64 else -(-n // 64) * 64 for n, _ in chunks]
    at = {"copy": [(copies,)] if copies else []}
    if chunks or decodes:
        at["dense"] = [(sum(n for n, _ in chunks) + decodes,)]
        at["head"] = [(len(chunks) + decodes,)]
    if chunks:
        at["recurrent_prefill"] = [(max(blocks), len(chunks))]
        at["full_prefill"] = [(n, prefix) for n, (_, prefix) in zip(blocks, chunks, strict=True)]
    if len(chunks) > 1:
        at["full_prefill_of_4"] = at["full_prefill"]
    if decodes:
        at |= {"recurrent_decode": [(decodes,)], "full_decode": [(decodes, context)]}
    expected = {
        part: sum(
            any(not low <= x <= high for x, (low, high) in zip(point, EDGES[part], strict=True))
            for point in points
        )
        for part, points in at.items()
    }
    cost = MeasuredCost(parse_profile(profile_data(), "p"))
    cost.step_s(
        [PrefillChunk(*chunk) for chunk in chunks], decodes, decodes * context, 1000 * copies
    )
    assert cost.extrapolated == {part: count for part, count in expected.items() if count}


def test_the_fit_finds_the_overhead_and_scale_that_were_put_in():
    """Steps made as 0.2 ms + 1.1 x parts are fitted exactly."""
    data = profile_data()
    plain = MeasuredCost(parse_profile(data, "p"))
    rng = np.random.default_rng(0)
    steps = []
    for _ in range(20):
        chunks = [[int(n), int(p)] for n, p in rng.integers(20, 4000, (rng.integers(0, 3), 2))]
        decodes = int(rng.integers(1, 200))
        step = {"chunks": chunks, "num_decodes": decodes, "decode_context_tokens": 700 * decodes}
        parts = plain.parts_s([PrefillChunk(*c) for c in chunks], decodes, 700 * decodes)
        steps.append(step | {"median_s": 2e-4 + 1.1 * sum(parts.values())})
    found = fit(data | {"fit_steps": steps})
    assert found.overhead_s == pytest.approx(2e-4)
    assert found.scale == pytest.approx(1.1)
    assert found.error < 1e-9


def test_break_even_is_where_the_gap_costs_more_than_the_copy(cost):
    """Copying one state takes 10 us, 30 of them 300 us. From 1025 to 1088 tokens scan and attention
    cost what 1088 do: 64 us more scan; attention 1088 x (2000 - g) - 1024 x 2000 ns = 128 us less
    1.088 us a token. A gap of one token costs 1 + 64 + 127 = 192 us more than none: more than one
    copy, less than 30. At 64 tokens it is 64 + 64 + 58 = 186 us, at 65 the next block adds 64 us
    and 64 x 1935 ns = 124 us: 65 + 128 + 181 = 374 us."""
    assert break_even_tokens(cost, 1000, 1024, 1000) == 1
    assert break_even_tokens(cost, 30000, 1024, 1000) == 65


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d["operators"].pop("copy"), "lacks copy"),
        (lambda d: d.pop("state_bytes"), "is missing"),
        (lambda d: d["operators"]["head"]["points"].clear(), "too few points"),
        (lambda d: d["operators"]["full_decode"]["points"].pop(), "lacks the point"),
        (lambda d: d["operators"]["head"]["points"][0].update(median_s=0.0), "greater than 0"),
    ],
)
def test_profiles_with_holes_are_refused(change, message):
    data = profile_data()
    change(data)
    with pytest.raises(UserError, match=message):
        parse_profile(data, "p.json")


@pytest.mark.parametrize(
    ("text", "message"), [("{", "is not JSON"), ("[]", "not a cost profile"), (None, "cannot be")]
)
def test_files_that_are_no_profiles_are_refused(text, message, tmp_path):
    path = tmp_path / "p.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(UserError, match=message):
        read_profile(path)


def test_tables_are_exact_at_their_points():
    data = operator([(1, 3, 9), (2, 5)], lambda x, y: 1.0 + x * y)
    table = read_table("t", data, "p")
    for x, y in product((1, 3, 9), (2, 5)):
        assert table.row(x).at(y) == pytest.approx(1 + x * y)
        assert table.power_row(x).at(y) == pytest.approx(1 + x * y)


def test_experts_and_all_reduces_are_added_where_a_profile_has_them():
    """3 tokens: 30 us of experts. 2 ranks, 8 bytes a token, 5 sublayers: each sends 2 * (1/2) * 24
    bytes at 24 MB/s = 1 us and waits 2 us, 15 us in all, which the fit does not scale."""
    data = profile_data()
    data["operators"]["experts"] = operator([(1, 100, 1000)], lambda n: 1e-5 * n)
    data["fit"] = {"overhead_s": 1e-4, "scale": 2.0}
    plain = MeasuredCost(parse_profile(profile_data(), "p"))
    cost = MeasuredCost(parse_profile(data, "p"), Allreduce(2, 8, 5, 24e6, 2e-6))
    expected = 1e-4 + 2 * (plain.step_s((), 3, 300) + 3e-5) + 15e-6
    assert cost.step_s((), 3, 300) == pytest.approx(expected)
    total = sum(cost.step_s((), 3, 300 + 3 * i) for i in range(9))
    assert cost.decode_steps_s(9, 3, 300) == pytest.approx(total)
    assert any("not measured" in note for note in cost.notes())
    assert not any("not measured" in note for note in plain.notes())


def test_lines_beyond_the_grid_do_not_cross():
    """Rows that rise by 4 and by 1 a unit at their end: out there both rise by 4."""
    times = {(1, 0): 1.0, (1, 1): 1.0, (1, 2): 5.0, (2, 0): 6.0, (2, 1): 7.0, (2, 2): 8.0}
    points = [{"at": list(at), "median_s": s, "low_s": s, "high_s": s} for at, s in times.items()]
    table = read_table("t", {"axes": ["x", "y"], "points": points}, "p")
    for row in (table.row, table.power_row):
        assert row(1).at(10) == pytest.approx(5 + 4 * 8)
        assert row(2).at(10) == pytest.approx(8 + 4 * 8)
        assert row(1).at(10) < row(1.5).at(10) < row(2).at(10)
