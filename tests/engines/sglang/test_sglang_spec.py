"""Numbers that the behavioural notes on SGLang 0.5.23 report for the engine's own code."""

from typing import Any

import pytest
from sglang_scenario import engine, hits, play, request

ALL = ("no_buffer", "extra_buffer", "extra_buffer_lazy")
BUFFERED = ALL[1:]


def _repeats(length: int, count: int, output: int = 10) -> list[Any]:
    return [request(f"r{i}", [("p", length)], output) for i in range(count)]


def _turns(first: int, output: int, user: int, count: int) -> list[Any]:
    """A conversation: each prompt is the last one, its output and `user` new tokens."""
    history, turns = [("u0", first)], []
    for number in range(count):
        answer = [(f"a{number}", output)]
        turns.append(request(f"t{number}", list(history), answer))
        history += answer + [(f"u{number + 1}", user)]
    return turns


def _shared(system: int, unique: int, count: int, output: int = 10) -> list[Any]:
    return [request(f"s{i}", [("sys", system), (f"q{i}", unique)], output) for i in range(count)]


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [("no_buffer", [0, 0, 0, 0]), *((name, [0, 192, 192, 192]) for name in BUFFERED)],
)
def test_a_repeated_prompt_hits_on_the_grid_only(strategy: str, expected: list[int]) -> None:
    assert hits(engine(strategy=strategy), _repeats(200, 4)) == expected


@pytest.mark.parametrize(
    ("strategy", "page", "output", "expected"),
    [
        ("no_buffer", 1, 100, [0, 399, 549, 699]),
        ("no_buffer", 1, 300, [0, 599, 949, 1299]),
        ("extra_buffer", 1, 100, [0, 256, 512, 576]),
        ("extra_buffer_lazy", 1, 100, [0, 256, 512, 576]),
        ("extra_buffer", 1, 300, [0, 512, 768, 1280]),
        ("extra_buffer", 64, 300, [0, 512, 768, 1280]),
        ("extra_buffer_lazy", 1, 300, [0, 512, 768, 1280]),
    ],
)
def test_conversations(strategy: str, page: int, output: int, expected: list[int]) -> None:
    server = engine(strategy=strategy, page_size=page)
    assert hits(server, _turns(300, output, 50, 4)) == expected


def test_only_the_last_decode_checkpoint_survives() -> None:
    turns = play(engine(), _turns(300, 300, 50, 4))
    assert [one.position for one in turns[2].tracked] == [960, 1024, 1280]
    assert turns[2].saved == [960, 1280]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"strategy": "no_buffer"}, [0, 0, 0, 0, 0]),
        ({"strategy": "extra_buffer"}, [0, 0, 960, 960, 960]),
        ({"strategy": "extra_buffer_lazy"}, [0, 0, 960, 960, 960]),
        ({"page_size": 64}, [0, 0, 960, 960, 960]),
        ({"chunked_prefill_size": 256}, [0, 768, 960, 960, 960]),
    ],
)
def test_a_shared_system_prompt(options: dict[str, Any], expected: list[int]) -> None:
    assert hits(engine(**options), _shared(1000, 150, 5)) == expected


def test_the_branch_state_takes_the_place_of_the_prompts_own() -> None:
    decisions = play(engine(), _shared(1000, 150, 2))
    assert decisions[1].saved == [960]


@pytest.mark.parametrize("pools", [{"state_slots": 6}, {"state_slots": 40, "kv_tokens": 700}])
def test_tight_pools_lose_the_oldest(pools: dict[str, int]) -> None:
    prompts = [request(f"x{i}", [(f"x{i}", 200)], 5) for i in range(6)]
    again = [request("x0again", [("x0", 200)]), request("x5again", [("x5", 200)])]
    decisions = play(engine(**pools), prompts + again)
    assert [one.num_hit_tokens for one in decisions[6:]] == [0, 192]
    evicted = [eviction for one in decisions for eviction in one.evictions]
    assert {(one.got_tokens, one.got_states) for one in evicted} == {(192, 1)}


def test_end_states_leave_tombstones_with_their_kv() -> None:
    server = engine(strategy="no_buffer", state_slots=4)
    decisions = play(server, _turns(300, 20, 50, 6))
    assert [one.num_hit_tokens for one in decisions] == [0, 319, 389, 459, 529, 599]
    last = [eviction for one in decisions[3:] for eviction in one.evictions]
    assert last
    assert all(one.tombstoned and not one.deleted for one in last)


@pytest.mark.parametrize(("slots", "served"), [(3, 0), (4, 1)])
def test_too_few_slots_end_the_engine_at_a_handover(slots: int, served: int) -> None:
    server = engine(state_slots=slots)
    play(server, _turns(300, 20, 50, 3))
    assert server.death == "no state slot to replace or take a saved state"
    outcomes = [one.outcome for one in play(engine(state_slots=slots), _turns(300, 20, 50, 3))]
    assert outcomes == ["served"] * served + ["died"] * (3 - served)


@pytest.mark.parametrize(
    ("suffix", "options", "expected"),
    [
        *((suffix, {"strategy": "no_buffer"}, [0, 0, 0]) for suffix in (40, 376, 1296)),
        (40, {"page_size": 64}, [0, 6464, 6464]),
        (376, {"page_size": 64}, [0, 0, 6464]),
        (1296, {"page_size": 64}, [0, 0, 6464]),
    ],
)
def test_issue_22935(suffix: int, options: dict[str, Any], expected: list[int]) -> None:
    assert hits(engine(**options), _shared(6476, suffix, 3)) == expected


def test_issue_21350_an_aligned_prompt_is_saved_one_step_too_deep() -> None:
    assert hits(engine(), _repeats(192, 4)) == [0, 0, 128, 128]


def test_issue_37198_second_touch_pays() -> None:
    rows = [(6000, 0), (5120, 880), (4992, 1008), (5120, 880), (4992, 1008)]
    requests = [
        request(f"r{i}", [("p", shared), *([(f"u{i}", rest)] if rest else [])])
        for i, (shared, rest) in enumerate(rows)
    ]
    assert hits(engine(page_size=64), requests) == [0, 0, 0, 5120, 4992]


@pytest.mark.parametrize(("size", "saved"), [(16, []), (80, [64, 144, 224, 304, 384])])
def test_issue_30938_chunks_below_the_grid_keep_nothing(size: int, saved: list[int]) -> None:
    server = engine(chunked_prefill_size=size)
    decisions = play(server, _repeats(400, 3))
    assert decisions[0].saved == saved
    if not saved:
        assert [one.num_hit_tokens for one in decisions] == [0, 0, 0]
        assert server.server.usage().kv_cached == 0


@pytest.mark.parametrize(
    ("slots", "expected"),
    [
        (48, [8192, 30720, 30720, 30720]),
        (40, [0, 8192, 30720, 30720]),
        *((slots, [0, 8192, 0, 0]) for slots in (32, 24, 16)),
    ],
)
def test_issue_38000_three_chains_and_a_fork(slots: int, expected: list[int]) -> None:
    chains = [request(f"c{i}", [(f"c{i}", 32768)]) for i in range(3)]
    fork = [request("fork", [("c0", 8192), ("f", 64)])]
    again = [request(f"again{i}", [(f"c{i}", 32768)]) for i in range(3)]
    server = engine(state_slots=slots, chunked_prefill_size=2048)
    assert hits(server, chains + fork + again)[3:] == expected


@pytest.mark.parametrize(
    ("strategy", "expected"), [("no_buffer", [0] * 6), ("extra_buffer", [0, 0] + [2048] * 4)]
)
def test_issue_37834_shared_groups(strategy: str, expected: list[int]) -> None:
    for group in range(3):
        prompts = [[(f"sys{group}", 2048), (f"q{group}_{i}", 64)] for i in range(6)]
        server = engine(strategy=strategy)
        assert hits(server, [request(f"g{i}", p) for i, p in enumerate(prompts)]) == expected


@pytest.mark.parametrize(("slots", "expected"), [(14, 0), (29, 1984)])
def test_twenty_conversations_over_few_slots(slots: int, expected: int) -> None:
    first = [request(f"c{i}", [(f"c{i}", 2000)]) for i in range(20)]
    again = request("again", [("c0", 2000), ("new", 30)])
    assert hits(engine(state_slots=slots), [*first, again])[-1] == expected


@pytest.mark.parametrize(("cap", "states", "fork_hit"), [(-1, 12, 768), (2, 2, 0)])
def test_issue_31230_the_cap_of_states_on_a_path(cap: int, states: int, fork_hit: int) -> None:
    server = engine(max_states_per_path=cap, chunked_prefill_size=256)
    decisions = play(server, [request("long", [("p", 3072)])])
    assert decisions[0].after is not None
    assert decisions[0].after.states_cached == states
    assert hits(server, [request("fork", [("p", 1000), ("x", 50)])]) == [fork_hit]


def test_an_interval_off_the_grid_becomes_their_common_multiple() -> None:
    server = engine(track_interval=100)
    assert server.options.decode_grid_tokens == 1600
    turn = play(server, [request("r", [("p", 1500)], 200)])[0]
    assert [one.position for one in turn.tracked] == [1472, 1600]


def test_states_in_a_pool_of_their_own_leave_the_active_slots_free() -> None:
    server = engine(int8_ckpt=True, state_slots=8)
    play(server, [request(f"r{i}", [(f"p{i}", 200)]) for i in range(40)])
    usage = server.server.usage()
    assert (usage.states_cached, usage.state_free) == (16, 8)


@pytest.mark.parametrize(
    ("options", "turns", "death"),
    [
        # The one state is the matched one, and locked: nowhere to copy it to.
        (
            {"strategy": "no_buffer", "state_slots": 1},
            [[("p", 50)], [("p", 50), ("q", 9)]],
            "no state slot for the copy of the matched state",
        ),
        (
            {"state_slots": 2},
            [[("p", 50)]],
            "no state slots for the request's tracking buffer",
        ),
        (
            {"strategy": "no_buffer", "int8_ckpt": True, "int8_ckpt_size": 1},
            [[("p", 50)], [("p", 50), ("q", 9)]],
            "no slot in the int8 checkpoint pool",
        ),
    ],
)
def test_what_a_server_dies_of(options: dict[str, Any], turns: list[Any], death: str) -> None:
    server = engine(**options)
    decisions = play(server, [request(f"t{i}", turn) for i, turn in enumerate(turns)])
    assert server.death == death
    assert [one.outcome for one in decisions] == ["served"] * (len(turns) - 1) + ["died"]
    after = server.serve(request("late", [("x", 10)]))
    assert (after.miss_reason, after.num_hit_tokens) == ("refused", 0)
