"""Steps worked out by hand."""

import pytest

from hybridsim.cache.base import PrefixCache
from hybridsim.cache.null_cache import NullCache
from hybridsim.cache.pools import Memory
from hybridsim.cache.radix_cache import RadixCache
from hybridsim.errors import UserError
from hybridsim.policies.checkpoint.base import CheckpointPolicy
from hybridsim.policies.checkpoint.fixed import Every, PromptEnd
from hybridsim.policies.eviction.lru import LRU
from hybridsim.records import MissReason
from hybridsim.request import Request, Spans
from hybridsim.sim.options import SchedulerOptions
from hybridsim.sim.scheduler import Scheduler
from hybridsim.sim.step import Step
from tests.sim.workloads import request


def radix(checkpoint: CheckpointPolicy, **options: bool) -> RadixCache:
    return RadixCache(Memory(1, 64, None, None), 4, checkpoint, LRU(), **options)


def scheduler(cache: PrefixCache, *requests: Request, **options: object) -> Scheduler:
    made = Scheduler(cache, SchedulerOptions(**options))  # type: ignore[arg-type]
    for item in requests:
        made.submit(item, now_s=0.0)
    return made


def chunks(step: Step) -> list[tuple[str, int, int]]:
    """(request, first token, last token + 1) of every chunk."""
    return [(c.job.request.request_id, c.work.num_prefix_tokens, c.end) for c in step.chunks]


def run(made: Scheduler, num_steps: int | None = None) -> list[Step]:
    """Take steps one second apart; until nothing is left to do if no number is given."""
    steps: list[Step] = []
    while num_steps is None or len(steps) < num_steps:
        step = made.schedule(float(len(steps)))
        if step is None:
            return steps
        steps.append(step)
        made.complete(step, float(len(steps)))
    return steps


def ended(made: Scheduler) -> list[str]:
    return [job.request.request_id for job in made.collect()]


def test_decodes_take_the_budget_first_and_chunks_share_the_rest() -> None:
    made = scheduler(
        NullCache(4),
        request(0, 5, 4), request(1, 20, 2), request(2, 3, 1),
        max_num_seqs=3, max_num_batched_tokens=8,
    )  # fmt: skip
    steps = run(made)
    assert [chunks(step) for step in steps] == [
        [("r0", 0, 5), ("r1", 0, 3)],  # 8 tokens
        [("r1", 3, 10)],  # 7 beside one decode
        [("r1", 10, 17)],
        [("r1", 17, 20), ("r2", 0, 3)],  # r0 decodes its fourth and last token
        [],  # r1 decodes its second
    ]
    assert [step.num_decodes for step in steps] == [0, 1, 1, 1, 1]
    # r0 has 5, 6, 7 tokens in context before its decodes, r1 has 20 before its one.
    assert [step.decode_context_tokens for step in steps] == [0, 5, 6, 7, 20]
    assert ended(made) == ["r0", "r2", "r1"]


def test_a_request_gets_its_first_token_from_the_step_that_finishes_its_prompt() -> None:
    made = scheduler(NullCache(4), max_num_seqs=1, max_num_batched_tokens=8)
    job = made.submit(request(0, 20, 3), now_s=0.0)
    run(made)
    record = job.record
    assert (record.scheduled_s, record.first_token_s, record.finished_s) == (0.0, 3.0, 5.0)


def test_without_output_a_request_ends_with_its_prefill() -> None:
    made = scheduler(NullCache(4), max_num_seqs=1, max_num_batched_tokens=8)
    job = made.submit(request(0, 20, 0), now_s=0.0)
    assert len(run(made)) == 3
    assert job.record.first_token_s == job.record.finished_s == 3.0


def test_whole_prompts_share_a_step_only_within_the_budget() -> None:
    made = scheduler(
        NullCache(4),
        request(0, 20, 1), request(1, 3, 1), request(2, 5, 1), request(3, 1, 1),
        max_num_seqs=8, max_num_batched_tokens=8, chunked_prefill=False,
    )  # fmt: skip
    assert [chunks(step) for step in run(made)] == [
        [("r0", 0, 20)],  # larger than the budget: alone
        [("r1", 0, 3), ("r2", 0, 5)],
        [("r3", 0, 1)],
    ]


def test_chunks_end_where_the_policy_wants_a_state() -> None:
    known = Request("r0", Spans.of([(1, 21)]), Spans.of([(2, 6)]))
    made = scheduler(radix(Every(8)), known, max_num_seqs=1, max_num_batched_tokens=11)
    steps = run(made)
    assert [chunks(step) for step in steps[:2]] == [
        [("r0", 0, 8), ("r0", 8, 11)],
        [("r0", 11, 16), ("r0", 16, 21)],
    ]
    # Every 8 tokens: 8 and 16 in prefill, 24 in decode; 26 tokens are computed in all.
    assert made.collect()[0].record.num_checkpoints == 3


def test_state_copies_are_paid_by_the_step_that_waits_for_them() -> None:
    prompt = Spans.of([(1, 8)])
    again = Request("again", prompt.joined(Spans.of([(2, 4)])), Spans.unknown(2))
    made = scheduler(
        radix(PromptEnd()), Request("first", prompt, Spans.unknown(2)), again,
        max_num_seqs=1, max_num_batched_tokens=64,
    )  # fmt: skip
    copied_bytes = [step.copied_bytes for step in run(made)]
    # A state has 64 bytes. `first` saves one at the end of its prefill, which its decode step
    # waits for. `again` copies it when admitted, computes 4 tokens, and saves its own.
    assert copied_bytes == [0, 64, 64, 64]


def test_a_prompt_that_is_cached_whole_still_computes_its_last_token() -> None:
    prompt = Spans.of([(1, 8)])
    twins = [Request(name, prompt, Spans.unknown(1)) for name in ("a", "b")]
    cache = radix(PromptEnd(), compute_last_token=False)
    made = scheduler(cache, *twins, max_num_seqs=1, max_num_batched_tokens=64)
    steps = run(made)
    assert [chunks(step) for step in steps] == [[("a", 0, 8)], [("b", 7, 8)]]
    assert [job.record.num_hit_tokens for job in made.collect()] == [0, 8]


def test_the_head_of_the_queue_is_not_passed_by_a_smaller_request() -> None:
    # 8 pages of 4: r0 holds 5 and grows to 6; r1 wants 4; r2 would want 1 but comes after r1.
    made = scheduler(
        NullCache(4, num_pages=8),
        request(0, 20, 4), request(1, 16, 1), request(2, 4, 1),
        max_num_seqs=8, max_num_batched_tokens=64,
    )  # fmt: skip
    steps = run(made)
    assert [chunks(step) for step in steps] == [
        [("r0", 0, 20)], [], [], [], [("r1", 0, 16), ("r2", 0, 4)]
    ]  # fmt: skip
    assert [step.num_waiting for step in steps] == [2, 2, 2, 2, 0]


def test_who_came_last_is_preempted_and_computed_again_with_what_it_generated() -> None:
    # 5 pages of 4. Both prompts take 2 pages. When both hold 8 tokens, one page is left for r0.
    made = scheduler(
        NullCache(4, num_pages=5),
        request(0, 7, 6), request(1, 7, 6),
        max_num_seqs=8, max_num_batched_tokens=64,
    )  # fmt: skip
    steps = run(made)
    assert [(chunks(step), step.num_decodes) for step in steps] == [
        ([("r0", 0, 7), ("r1", 0, 7)], 0),
        ([], 2),  # the eighth token fits
        ([], 1),  # the ninth does not: r1 has generated 2 tokens and goes
        ([], 1),
        ([], 1),
        ([], 1),  # r0 ends with 12 tokens: 3 pages
        ([("r1", 0, 7), ("r1", 7, 9)], 0),  # its prompt and what it generated
        ([], 1),
        ([], 1),
        ([], 1),
    ]
    records = [job.record for job in made.collect()]
    assert [record.num_preemptions for record in records] == [0, 1]
    assert [record.first_token_s for record in records] == [1.0, 1.0]
    assert [record.finished_s for record in records] == [6.0, 10.0]


def test_a_request_that_can_never_fit_is_refused_and_the_others_go_on() -> None:
    made = scheduler(
        NullCache(4, num_pages=5),
        request(0, 18, 4), request(1, 18, 3),
        max_num_seqs=8, max_num_batched_tokens=64,
    )  # fmt: skip
    # 18 + 4 - 1 = 21 tokens need 6 pages; 18 + 3 - 1 = 20 need 5.
    (refused,) = made.collect()
    assert refused.request.request_id == "r0"
    assert refused.record.miss_reason == MissReason.REFUSED
    assert refused.record.finished_s is None
    run(made)
    assert ended(made) == ["r1"]


class Grudging(NullCache):
    """Says that a request fits and then has no room for it, not even alone."""

    def fits(self, request: Request) -> bool:
        return True


def test_a_request_that_gets_no_memory_even_alone_is_refused_instead_of_waiting_for_ever() -> None:
    made = scheduler(
        Grudging(4, num_pages=2), request(0, 9, 1), request(1, 8, 1),
        max_num_seqs=2, max_num_batched_tokens=64,
    )  # fmt: skip
    assert [chunks(step) for step in run(made)] == [[("r1", 0, 8)]]
    assert ended(made) == ["r0", "r1"]


def test_a_request_that_runs_out_of_pages_alone_is_refused_instead_of_starting_over_for_ever() -> (
    None
):
    made = scheduler(
        Grudging(4, num_pages=2), request(0, 7, 9), max_num_seqs=2, max_num_batched_tokens=64
    )
    assert len(run(made)) == 2  # the prompt, and the one token that fits
    (job,) = made.collect()
    assert job.record.miss_reason == MissReason.REFUSED
    assert (job.record.num_preemptions, job.record.finished_s) == (1, None)


def test_priority_goes_before_arrival_in_admission_and_in_preemption() -> None:
    made = scheduler(
        NullCache(4), request(0, 4, 1, priority=2), request(1, 4, 1), request(2, 4, 1, priority=1),
        max_num_seqs=1, max_num_batched_tokens=64, order="priority",
    )  # fmt: skip
    run(made)
    assert ended(made) == ["r1", "r2", "r0"]


def test_pages_that_turn_out_to_be_resident_already_let_the_next_request_in() -> None:
    # 10 pages of 4. The twins prefill at once, 4 pages each, and r2 (4 pages) finds 2. When their
    # prompts are done the second gives its 4 back; both grow by one page; 4 remain for r2.
    twins = [Request(name, Spans.of([(1, 16)]), Spans.unknown(9)) for name in ("a", "b")]
    cache = RadixCache(Memory(1, 64, 10, None), 4, PromptEnd(), LRU())
    made = scheduler(cache, *twins, request(2, 16, 1), max_num_seqs=8, max_num_batched_tokens=64)
    assert [chunks(step) for step in run(made, 2)] == [
        [("a", 0, 16), ("b", 0, 16)],
        [("r2", 0, 16)],
    ]


def test_a_step_that_preempts_lets_nobody_in() -> None:
    # 5 pages of 4, as above; the urgent r2 comes when r0 and r1 hold 4 pages, and wants 2.
    made = scheduler(
        NullCache(4, num_pages=5), request(0, 7, 6), request(1, 7, 6, priority=2),
        max_num_seqs=8, max_num_batched_tokens=64, order="priority",
    )  # fmt: skip
    run(made, 1)
    made.submit(request(2, 5, 1, priority=1), now_s=1.0)
    steps = run(made, 3)
    assert [(chunks(step), step.num_running, step.num_waiting) for step in steps] == [
        ([], 2, 1),  # one page is free
        ([], 1, 2),  # r0 takes it for its ninth token, r1 wants one too and goes
        ([("r2", 0, 5)], 2, 1),
    ]
    assert not steps[1].may_repeat  # or a leap would keep r2 waiting


def test_a_leap_ends_with_the_first_request_to_end() -> None:
    made = scheduler(NullCache(4), request(0, 4, 30), request(1, 4, 10), max_num_seqs=2)
    (prefill,) = run(made, 1)
    assert made.leap_length(prefill) == 1
    decode = made.schedule(1.0)
    assert decode is not None
    assert made.leap_length(decode) == 9  # r1 has one token of ten


def test_a_leap_ends_at_a_checkpoint_in_decode() -> None:
    known = Request("r0", Spans.of([(1, 4)]), Spans.of([(2, 30)]))
    made = scheduler(radix(Every(16)), known, max_num_seqs=2)
    run(made, 1)
    decode = made.schedule(1.0)
    assert decode is not None
    assert made.leap_length(decode) == 12  # from 4 tokens to 16


def test_a_leap_ends_when_pages_run_out() -> None:
    # 6 pages of 4: each takes 1 for its prompt; each may have 2 more, that is 12 tokens.
    made = scheduler(
        NullCache(4, num_pages=6), request(0, 4, 15), request(1, 4, 15), max_num_seqs=2
    )
    run(made, 1)
    decode = made.schedule(1.0)
    assert decode is not None
    assert made.leap_length(decode) == 14
    assert made.extend(decode, 14).num_steps == 8


@pytest.mark.parametrize(
    ("options", "place"),
    [
        ({"max_num_seqs": 0}, "scheduler.max_num_seqs"),
        ({"max_num_seqs": 9, "max_num_batched_tokens": 8}, "scheduler.max_num_batched_tokens"),
        ({"order": "fifo"}, "scheduler.order"),
    ],
)
def test_impossible_options_name_the_key(options: dict[str, object], place: str) -> None:
    with pytest.raises(UserError) as caught:
        SchedulerOptions(**options)  # type: ignore[arg-type]
    assert caught.value.place == place


def test_an_empty_prompt_is_an_error_that_names_the_request() -> None:
    made = scheduler(NullCache(4))
    with pytest.raises(UserError, match="request void"):
        made.submit(Request("void", Spans.unknown(0), Spans.unknown(3)), now_s=0.0)
