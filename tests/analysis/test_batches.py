"""Bounds of timed runs against a linear program, a search over all policies, and real runs."""

from dataclasses import replace

import hypothesis.strategies as st
import numpy as np
from hypothesis import given, settings

from hybridsim.analysis.batches import batch_problems
from hybridsim.analysis.bound import bracket
from hybridsim.analysis.interval import BoundRules, interval_problem
from hybridsim.analysis.room import Load
from hybridsim.cache.pools import SharedMemory
from hybridsim.cache.radix_cache import RadixCache
from hybridsim.policies.checkpoint.fixed import PromptEnd
from hybridsim.policies.eviction.lru import LRU
from hybridsim.records import BatchChange
from hybridsim.sim.engine import simulate
from tests.analysis.batch_twin import BatchTwin, batch_lp, best_in_batches
from tests.analysis.test_bound import CHECKPOINTS, EVICTIONS
from tests.analysis.workloads import memory_of, registry_cache, request_of, traces
from tests.sim.workloads import ARRIVALS, FREE, AffineCost, workloads

SEEDS = st.integers(0, 2**32 - 1)


class Run:
    """A made-up trace, a made-up schedule of it, and a memory in which the running just fit."""

    def __init__(self, seed, num_requests, max_tokens, most_spare=5):
        rng = np.random.default_rng(seed)
        self.requests = random_trace(rng, num_requests, max_tokens)
        self.changes = random_schedule(rng, num_requests)
        self.sigma = int(rng.integers(0, 4))
        self.twin = BatchTwin(self.requests, self.changes, True)
        held = [(tokens, states) for _, _, tokens, states in self.twin.moments()]
        spare = int(rng.integers(0, most_spare + 1))
        self.capacity = max(t + self.sigma * s for t, s in held) + spare
        self.pools = max(t for t, _ in held) + spare, max(s for _, s in held) + spare % 3

    def upper(self, *, is_split=False, num_steps=1500):
        """In tokens."""
        sigma = max(self.sigma, 1) if is_split else self.sigma
        problem = batch_problems(self.requests, self.changes, BoundRules(1, sigma)).bound
        pools = (self.pools[0], self.pools[1] * sigma) if is_split else (self.capacity, None)
        found = bracket(problem, *pools, num_steps=num_steps, makes_plans=False)
        return found.upper * problem.total_reward

    def lower(self):
        """Of a plan that is sure to fit; 0 without one."""
        plan = batch_problems(self.requests, self.changes, BoundRules(1, self.sigma)).plan
        if not plan.load.fits(self.sigma, self.capacity, None):
            return 0.0
        return bracket(plan, self.capacity, num_steps=100).lower * plan.total_reward


def random_trace(rng, num_requests, max_tokens):
    """Prompts that are cut from, or go on from, what was said before."""
    said, requests = [[]], []
    for index in range(num_requests):
        base = said[rng.integers(len(said))]
        kept = base[: rng.integers(len(base) + 1)] if rng.random() < 0.5 else base
        prompt = (kept + rng.integers(1, 4, rng.integers(1, 5)).tolist())[:max_tokens]
        output = rng.integers(1, 4, rng.integers(0, 4)).tolist()
        known = rng.random() < 0.5
        said.append(prompt + output if known else prompt)
        requests.append(request_of(index, prompt, output, known))
    return requests


def random_schedule(rng, num_requests):
    """Few run at once, some are preempted and go on at once, and all are done at last."""
    waiting, running, changes, step = list(range(num_requests)), [], [], 0
    while waiting or running:
        step += int(rng.integers(2))
        if waiting and (not running or (len(running) < 3 and rng.random() < 0.5)):
            running.append(waiting.pop(0))
            changes.append(BatchChange(running[-1], True, step))
            continue
        step += 1  # nobody leaves before a step is over
        request = running.pop(rng.integers(len(running)))
        changes.append(BatchChange(request, False, step))
        if rng.random() < 0.15:
            waiting = [request, *waiting]
    return changes


@settings(max_examples=30)
@given(SEEDS)
def test_the_upper_bound_is_never_below_the_linear_program(seed):
    run = Run(seed, num_requests=9, max_tokens=8)
    assert run.upper() >= batch_lp(run.twin, run.sigma, run.capacity) - 1e-6
    lp = batch_lp(run.twin, max(run.sigma, 1), *run.pools)
    assert run.upper(is_split=True) >= lp - 1e-6


def test_it_is_hardly_above():
    """The program has a row for every moment, the bound two for each start of a request."""
    runs = [Run(seed, num_requests=9, max_tokens=8) for seed in range(25)]
    programs = [batch_lp(run.twin, run.sigma, run.capacity) for run in runs]
    programs += [batch_lp(run.twin, max(run.sigma, 1), *run.pools) for run in runs]
    bounds = [run.upper(is_split=split) for split in (False, True) for run in runs]
    ideals = [run.upper(num_steps=1) for run in runs] * 2
    gap, room = sum(bounds) - sum(programs), sum(ideals) - sum(programs)
    assert 0 <= gap < 0.1 * room
    assert room > 0.01 * sum(programs)  # memory did bind


@settings(max_examples=30)
@given(SEEDS)
def test_no_way_to_keep_things_beats_it(seed):
    run = Run(seed, num_requests=5, max_tokens=4, most_spare=4)
    best = best_in_batches(run.twin, run.sigma, run.capacity)
    assert run.upper(num_steps=300) >= best - 1e-6
    assert run.lower() <= best + 1e-6


@settings(max_examples=60)
@given(traces(), st.booleans(), st.booleans(), st.sampled_from([1, 2, 3]))
def test_one_after_another_the_problem_is_that_of_replay(requests, caps, outputs, page_tokens):
    rules = BoundRules(2, 5, page_tokens, outputs=outputs, caps_last_token=caps)
    memory = SharedMemory(2 * page_tokens, 5, 10**6)
    cache = RadixCache(memory, page_tokens, PromptEnd(), LRU())
    run = simulate(requests, cache, FREE, arrivals="serial")
    problems = batch_problems(requests, run.changes, rules, num_warmup=2)
    replayed = interval_problem(requests, rules, num_warmup=2)
    for timed in (problems.bound, problems.plan):
        for name in (
            "first", "previous", "kv_bytes", "begin_tokens", "end_tokens", "reward", "left",
        ):  # fmt: skip
            assert getattr(timed, name).tolist() == getattr(replayed, name).tolist(), name
        for name in Load.__slots__:
            assert getattr(timed.load, name).tolist() == getattr(replayed.load, name).tolist(), name
        assert timed.total_reward == replayed.total_reward


@settings(max_examples=150)
@given(
    workloads(),
    ARRIVALS,
    st.sampled_from(CHECKPOINTS),
    st.sampled_from(EVICTIONS),
    st.sampled_from([1, 4, 16]),
    st.sampled_from([0, 8, 64]),
    st.sampled_from([None, 1, 2, 4]),
    st.integers(40, 300),
    st.booleans(),
)
def test_no_timed_run_of_the_registries_beats_its_bound(
    workload, arrivals, checkpoint, evicting, page_tokens, sigma, slots, capacity, caps
):
    requests = [replace(r, session_id=str(i % 3)) for i, r in enumerate(workload.requests)]
    outputs = not caps or sigma > 0
    cache = registry_cache(
        requests, memory_of(page_tokens, sigma, capacity, slots), page_tokens, checkpoint, evicting,
        compute_last_token=caps, cache_outputs=outputs,
    )  # fmt: skip
    if cache is None:
        return
    run = simulate(requests, cache, AffineCost(), workload.options, arrivals=arrivals)
    rules = BoundRules(1, sigma, page_tokens, outputs=outputs, caps_last_token=caps)
    problems = batch_problems(requests, run.changes, rules)
    problem = problems.bound
    pools = (capacity, None)
    if slots is not None:
        pools = (capacity // page_tokens * page_tokens, slots * sigma)
    _the_running_fit(problem, *pools)
    found = bracket(problem, *pools, num_steps=60, makes_plans=False)
    hits = sum(record.num_hit_tokens for record in run.records)
    assert hits <= found.upper * problem.total_reward + 1e-6


def _the_running_fit(problem, capacity, state_capacity):
    """What they are said to hold at the least was really held, so it fits."""
    sigma = problem.rules.state_bytes
    for kind in ("events", "interludes") if state_capacity is None else ("most", "interludes"):
        kv = getattr(problem.load, f"{kind}_kv_bytes")
        states = getattr(problem.load, f"{kind}_states") * sigma
        if state_capacity is None:
            assert (kv + states <= capacity).all()
        else:
            assert (kv <= capacity).all()
            assert (states <= state_capacity).all()
