"""Laws that hold for every trace, and sums of losses."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from vllm_workloads import engine, hits, repeated, request, shared_head

from hybridsim.engines.vllm import Geometry, VLLMEngine, VLLMOptions, build_layout
from hybridsim.request import Request, Spans
from tests.plain import num_common, tokens_of


def small_engine(num_blocks: int = 40, **options: int | str | None) -> VLLMEngine:
    """Blocks of 16 tokens, one attention group and three of states."""
    settings_ = VLLMOptions(**{"block_size": 16, "max_model_len": 2000, **options})  # type: ignore[arg-type]
    layout = build_layout(Geometry(2, 6, 32, 100), settings_)
    return VLLMEngine(settings_, layout, num_blocks)


@st.composite
def traces(draw: st.DrawFn) -> list[Request]:
    """Prompts of a few shared segments; every output has content of its own."""
    segment = st.tuples(st.sampled_from("abcd"), st.sampled_from([5, 16, 31, 32, 40]))
    prompts = draw(st.lists(st.lists(segment, min_size=1, max_size=4), min_size=1, max_size=8))
    return [request(f"r{i}", prompt, draw(st.integers(1, 40))) for i, prompt in enumerate(prompts)]


MODES = st.sampled_from(
    [
        {"retention": 0},
        {"retention": None},
        {"prefix_match_unit": 4},
        {"spec_k": 2, "eagle_drop": True},
        {"spec_k": 2, "hash_lookahead": 1},
        {"mamba_mode": "none"},
        {"version": "0.27.1", "mamba_mode": "all"},
    ]
)


@settings(max_examples=60)
@given(traces(), MODES, st.sampled_from([25, 40, 300]))
def test_hits_are_on_the_grid_and_losses_add_up(
    trace: list[Request], options: dict[str, int], num_blocks: int
) -> None:
    served_by = small_engine(num_blocks, **options)
    past: list[list[tuple[int, int]]] = []
    grid = served_by.layout.unit
    for each in trace:
        record = served_by.serve(each)
        if record.miss_reason == "refused":
            continue
        tokens = [
            pair
            for spans in (each.prompt, each.output)
            for pair in tokens_of(spans)
        ]  # fmt: skip
        ideal = max((num_common(tokens, old) for old in past), default=0)
        ideal = min(ideal, each.num_prompt_tokens - 1)
        assert record.num_hit_tokens % grid == 0
        assert record.num_hit_tokens <= record.num_match_tokens <= each.num_prompt_tokens
        assert record.num_hit_tokens <= ideal
        assert sum(served_by.last_losses.values()) == ideal - record.num_hit_tokens
        past.append(tokens[:-1])
    served_by.check()


@settings(max_examples=40)
@given(traces(), MODES)
def test_requests_far_apart_are_served_as_one_after_another(
    trace: list[Request], options: dict[str, int]
) -> None:
    alone, together = small_engine(300, **options), small_engine(300, **options)
    expected = [alone.serve(each) for each in trace]
    far_apart = [1000 * position for position in range(len(trace))]
    assert together.run_concurrent(trace, far_apart) == expected
    together.check()


@settings(max_examples=40)
@given(traces(), st.integers(0, 6), st.sampled_from([20, 30, 200]))
def test_concurrent_runs_end_with_every_block_given_back(
    trace: list[Request], distance: int, num_blocks: int
) -> None:
    served_by = small_engine(num_blocks, max_num_batched_tokens=64, max_num_seqs=4)
    arrivals = [distance * position for position in range(len(trace))]
    records = served_by.run_concurrent(trace, arrivals)
    served_by.check()
    assert [record.request_id for record in records] == [each.request_id for each in trace]
    if served_by.stuck is None:
        assert served_by.scheduler.cache.pool.num_free == num_blocks - 1


def test_blocks_of_a_block_trace_and_its_tokens_are_served_alike() -> None:
    prompts = [[(7, 512), (8, 512), (9, 300)], [(7, 512), (8, 512), (4, 512)], [(7, 512), (8, 40)]]
    blocks = [Request(str(i), Spans.of(p), Spans.unknown(50)) for i, p in enumerate(prompts)]
    tokens = [
        Request(str(i), Spans.of([(1000 * c + k, 1) for c, n in p for k in range(n)]),
                Spans.unknown(50))
        for i, p in enumerate(prompts)
    ]  # fmt: skip
    by_blocks, by_tokens = (small_engine(400) for _ in range(2))
    assert [by_blocks.serve(r) for r in blocks] == [by_tokens.serve(r) for r in tokens]


def test_unknown_output_matches_nothing() -> None:
    served_by = small_engine(400, retention=None)
    first = Request("a", Spans.of([(1, 40)]), Spans.unknown(60))
    again = Request("b", Spans.of([(1, 40)]).joined(Spans.unknown(60)), Spans.unknown(1))
    # Of the 40 known tokens two blocks of 16 are shared, the rest is new each time.
    assert hits(served_by, [first, again]) == [0, 32]


def test_a_prompt_without_room_for_output_is_refused_at_the_door() -> None:
    served_by = engine(max_model_len=2000)
    assert hits(served_by, repeated(2000, times=1) + repeated(1999)) == [None, 0, 1632, 1632]
    assert served_by.stuck is None


def test_a_stuck_request_blocks_all_later_ones_unless_it_is_aborted() -> None:
    small, large = request("small", [("p", 600)]), request("large", [("q", 9000)])
    # 9000 tokens need 17 + 3 blocks, the pool has 13.
    blocked = engine(14)
    assert hits(blocked, [small, large, small]) == [0, None, None]
    assert blocked.stuck == "large"
    patient = engine(14, abort_stuck=True)
    assert hits(patient, [small, large, small]) == [0, None, 544]


def test_stuck_among_others_ends_a_concurrent_run() -> None:
    trace = [request("small", [("p", 600)]), request("large", [("q", 9000)]), *repeated(700, 1)]
    records = engine(14).run_concurrent(trace, [0, 0, 0])
    assert [record.miss_reason for record in records] == ["cold", "refused", "refused"]
    records = engine(14, abort_stuck=True).run_concurrent(trace, [0, 0, 0])
    assert [record.miss_reason for record in records] == ["cold", "refused", "cold"]


def test_what_a_request_had_computed_before_it_was_given_up_counts_as_seen() -> None:
    """Blocks of one token: R0 needs too many, R1 and R2 are preempted in the middle and given up.
    What they leave is hit by R3, whose first 12 tokens R2 had computed: 12 seen, 6 of them hit."""
    served_by = engine(
        23, version="0.27.1", block_size=1, abort_stuck=True, max_num_batched_tokens=64,
        max_num_seqs=4, check_startup=False, max_model_len=256,
    )  # fmt: skip
    prompts = [
        [("a", 18), ("b", 3)], [("a", 6), ("c", 8)], [("a", 15), ("c", 1)], [("a", 12), ("c", 1)]
    ]  # fmt: skip
    records = [
        served_by.serve(request(f"r{i}", prompt, output))
        for i, (prompt, output) in enumerate(zip(prompts, (12, 12, 2, 2), strict=True))
    ]
    assert [record.miss_reason for record in records[:3]] == ["refused"] * 3
    assert records[3].num_hit_tokens == 6
    assert list(records[3].lost_tokens.values()) == [12 - 6]
    served_by.check()


@pytest.mark.parametrize(
    ("options", "reasons"),
    [
        ({}, ["cold", "first_fork", "alignment", "alignment"]),
        ({"junction": False}, ["cold"] + ["in_unique_tokens"] * 3),
        ({"mamba_mode": "none"}, ["cold"] + ["kv_evicted"] * 3),
    ],
)
def test_reasons_of_a_shared_head(options: dict[str, bool], reasons: list[str]) -> None:
    served_by = engine(**options)
    assert [str(served_by.serve(each).miss_reason) for each in shared_head()] == reasons


def test_losses_of_a_fork_under_a_drafter() -> None:
    served_by = engine(spec_k=3, eagle_drop=True)
    first, second, third, _ = shared_head()
    served_by.serve(first)
    # Blocks of 560. The first saved its state at 1120, but of the 1120 tokens that attention
    # matches one block is given up; so the drop costs all of it. 1500 - 1120 is below a block.
    served_by.serve(second)
    assert served_by.last_losses == {"drafter_drop": 1120, "alignment": 380}
    # The second saved a state at the fork as it saw it, at 560.
    assert served_by.serve(third).num_hit_tokens == 560
    assert served_by.last_losses == {"drafter_drop": 560, "alignment": 380}


def test_losses_where_a_fork_meets_a_lookahead_hash() -> None:
    served_by = engine(spec_k=3, hash_lookahead=1)
    first, second, *_ = shared_head(shared=3 * 560, unique=300)
    served_by.serve(first)
    # A state was saved at 1680, where the prompts part; its hash covers one token more.
    assert served_by.serve(second).num_hit_tokens == 0
    assert served_by.last_losses == {"drafter_drop": 1680}


def test_sources_of_hits_in_a_conversation() -> None:
    served_by = engine(retention=None)
    head = request("head", [("p", 1500)], [("o", 700)])
    assert served_by.serve(head).hit_source == "none"
    # 1500 tokens of prompt: blocks end at 1088 (its last) and, in the output, at 1632 and 2176.
    turn = [("p", 1500), ("o", 700), ("u", 300)]
    assert served_by.serve(request("turn", turn)).hit_source == "output"
    assert served_by.serve(request("same", [("p", 1500)])).hit_source == "prompt_end"
