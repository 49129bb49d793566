"""The searches and checks over trials: hand-made numbers, and a grid of real replays."""

from dataclasses import replace

import pytest

from hybridsim.analysis.curve import CacheRules
from hybridsim.build import Capacity
from hybridsim.models import get_model
from hybridsim.plan.bench import Bench, Trial
from hybridsim.plan.candidates import label_of
from hybridsim.plan.confidence import cross_trials, is_same_trace
from hybridsim.plan.research import ResearchPlanner
from hybridsim.plan.search import best_of, better, steps_around
from hybridsim.traces import read_trace

MODEL = get_model("qwen3.5-0.8b")
MIB = 2**20


def chats(seed: int, num_sessions: int = 12):
    options = {"generator": "chat", "num_sessions": num_sessions, "mean_turns": 4}
    return read_trace(None, "generate", options=options, seed=seed).requests


def trial(rate: float, first: float = 0.0, second: float = 0.0, refused: int = 0) -> Trial:
    return Trial({}, rate, first, second, refused, 0, Capacity(), ())


def test_more_hits_beat_fewer_refusals_and_a_hair_beats_nothing():
    # A refused prompt counts as one without a hit, so refusals are in the rate already: on agents
    # a split for the longest prompts alone would leave no memory to keep anything in.
    assert better(trial(0.5, refused=1), trial(0.1))
    assert not better(trial(0.1), trial(0.5, refused=1))
    assert better(trial(0.5), trial(0.5, refused=1))
    assert not better(trial(0.5, refused=1), trial(0.5))
    assert not better(trial(0.50005), trial(0.5))
    assert better(trial(0.502), trial(0.5))
    assert not better(None, trial(0.0))
    first = trial(0.5)
    assert best_of([first, trial(0.5), trial(0.4)]) is first


def test_steps_stay_inside():
    assert steps_around(0.5, 0.05) == (pytest.approx(0.45), pytest.approx(0.55))
    assert steps_around(0.04, 0.05) == (0.02, pytest.approx(0.09))
    assert steps_around(0.98, 0.05) == (pytest.approx(0.93), pytest.approx(0.99))


def test_regret_is_what_the_other_half_would_have_had():
    one, two = trial(0.0, first=0.6, second=0.2), trial(0.0, first=0.5, second=0.3)
    names = {id(one): "one", id(two): "two"}
    on_first, on_second = cross_trials([one, two], lambda found: names[id(found)])
    assert (on_first.choice, on_first.other_rate) == ("one", 0.2)
    assert on_first.regret_points == pytest.approx(10)  # 30 % instead of 20 %
    assert (on_second.choice, on_second.other_rate) == ("two", 0.5)
    assert on_second.regret_points == pytest.approx(10)


def test_another_seed_is_another_trace_and_the_same_is_the_same():
    assert is_same_trace(chats(1), chats(1))
    assert not is_same_trace(chats(1), chats(2))


@pytest.mark.parametrize("memory", [200 * MIB, 600 * MIB])
@pytest.mark.parametrize("policy", ["prompt_end", "log", "marconi"])
@pytest.mark.parametrize("seed", [1, 2])
def test_the_planned_split_is_the_best_of_a_grid_of_replays(seed, policy, memory):
    requests = chats(seed)
    rules = CacheRules(MODEL.kv_bytes_per_token, MODEL.state_bytes, 16)
    bench = Bench("research", MODEL, requests, fixed={"cache.page_size": 16})
    plan = ResearchPlanner(bench, rules, {policy: policy}, step=0.05).plan(memory)
    grid = Bench("research", MODEL, requests, fixed={"cache.page_size": 16})
    settings = {"cache.memory": memory, "cache.checkpoint": policy}
    tried = {
        step / 20: grid.attempt({**settings, "cache.state_fraction": step / 20})
        for step in range(2, 19)
    }
    found = {fraction: t for fraction, t in tried.items() if t is not None}
    best = max(
        found, key=lambda fraction: (-found[fraction].num_refused, found[fraction].token_hit_rate)
    )
    assert plan.best.num_refused <= found[best].num_refused
    is_near = plan.fraction is not None and abs(plan.fraction - best) <= 0.05 + 1e-9
    assert is_near or plan.best.token_hit_rate >= found[best].token_hit_rate - 0.01


def test_the_plan_is_a_replay_and_no_neighbour_beats_it():
    requests = chats(3)
    rules = CacheRules(MODEL.kv_bytes_per_token, MODEL.state_bytes, 16)
    bench = Bench("research", MODEL, requests, fixed={"cache.page_size": 16})
    policies = {label_of(value): value for value in ("prompt_end", "branch", "all_blocks")}
    plan = ResearchPlanner(bench, rules, policies, step=0.05).plan(400 * MIB)
    again = Bench("research", MODEL, requests).run(plan.best.settings)
    assert again == replace(plan.best)
    assert set(policies) < set(plan.by_policy)
    assert plan.neighbours is not None
    others = [plan.neighbours.below, plan.neighbours.above, *plan.by_policy.values()]
    assert not any(better(other, plan.best) for other in others)


def test_evictions_are_tried_on_the_winner_and_counted_in_its_name():
    requests = chats(3)
    rules = CacheRules(MODEL.kv_bytes_per_token, MODEL.state_bytes, 16)
    bench = Bench("research", MODEL, requests, fixed={"cache.page_size": 16})
    consumed = {"name": "lru", "refresh": "consumed"}
    policies = {"turn_end": "turn_end"}
    planner = ResearchPlanner(bench, rules, policies, step=0.05, evictions=["lru", "lfu", consumed])
    plan = planner.plan(300 * MIB)
    assert set(plan.by_policy) == {
        "turn_end", "turn_end, lfu", "turn_end, lru(refresh=consumed)",
    }  # fmt: skip
    assert plan.best.token_hit_rate == max(t.token_hit_rate for t in plan.by_policy.values())
    alone = Bench("research", MODEL, requests, fixed={"cache.page_size": 16})
    lru = ResearchPlanner(alone, rules, policies, step=0.05, evictions=["lru"]).plan(300 * MIB)
    assert plan.best.token_hit_rate >= lru.best.token_hit_rate
    assert all("cache.eviction" not in trial.settings for trial in alone.trials)
    assert plan.one_pass is not None
    assert plan.one_pass.is_exact == (plan.label == "turn_end")


def test_the_first_eviction_is_where_the_search_starts():
    requests = chats(3)
    rules = CacheRules(MODEL.kv_bytes_per_token, MODEL.state_bytes, 16)
    bench = Bench("research", MODEL, requests, fixed={"cache.page_size": 16})
    planner = ResearchPlanner(
        bench, rules, {"turn_end": "turn_end"}, step=0.05, evictions=["lfu", "fifo"]
    )
    plan = planner.plan(300 * MIB)
    assert set(plan.by_policy) == {"turn_end, lfu", "turn_end, fifo"}
    assert {trial.settings["cache.eviction"] for trial in bench.trials} == {"lfu", "fifo"}
    assert plan.one_pass is not None
    assert not plan.one_pass.is_exact
