"""The interval problem of a timed run: requests run side by side, in the batches of that run.

The bound speaks of every placement of states and every eviction under *one run's schedule*: which
request enters the batch when, relative to the others, and which leaves it, preemption included.
Why a hit must have been paid for:

- Only running requests bring content. Say request t starts and resumes at p. If none of the
  requests that pass a token before p and started earlier is running from some moment on until t
  starts, then nobody can have brought the token or a state there since, so both were held idle all
  that time. Earlier moments are given away, and so is what anybody who runs at t's start passes.
- Idle content that is charged so is on the path of nobody who runs meanwhile. So it takes room
  beside what the running hold at the least: KV of the different pages of their prompts (of whole
  sequences at their end), and a state each.
- Of two requests for one token the later is charged from after the earlier one's start on, since
  that one passes it too. So nothing is charged twice.
- What nobody passed who entered the batch in an earlier step was not computed yet: no hit.

Requests that run one after another have the problem of `interval`, number by number.

A plan is another matter: it must not hope. What it resumes from is held idle since a request that
was done, and it fits beside what the running could take at the most, nothing shared.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from hybridsim.analysis.interval import BoundRules, Problem, Served, bound_tree, problem_of
from hybridsim.analysis.passes import NEVER, Passes, PathTree, all_passes
from hybridsim.analysis.reward import Reward
from hybridsim.analysis.room import Load
from hybridsim.records import BatchChange
from hybridsim.request import Int64Array, Request

_NOT_YET = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True, eq=False)
class BatchProblems:
    """Of one run: what bounds all policies from above, and what a plan may do for sure.

    The plan's is good only where its load fits into the memory at all times.
    """

    bound: Problem
    plan: Problem


def batch_problems(
    requests: Sequence[Request],
    changes: Sequence[BatchChange],
    rules: BoundRules,
    *,
    num_warmup: int = 0,
    reward: Reward | None = None,
) -> BatchProblems:
    """The problems of a run that served `requests` in the batches that `changes` tell of.

    Their requests are those that started, in that order; they earn what they resume at their first
    start. O(passes (1 + preemptions)).
    """
    order = list(dict.fromkeys(change.request for change in changes if change.enters))
    served = Served.chosen(requests, order, num_warmup)
    tree = bound_tree(served.requests, rules)
    batch = _Batch(tree, all_passes(tree), served.requests, rules)
    place_of = {index: place for place, index in enumerate(order)}
    num_entries = Counter(change.request for change in changes if change.enters)
    for change in changes:
        place = place_of[change.request]
        if change.enters:
            num_entries[change.request] -= 1
            batch.enter(place, change.step)
        else:
            batch.leave(place, is_done=not num_entries[change.request])
    left = np.array(batch.left, dtype=np.int64)
    bound, plan = (
        problem_of(
            served, rules, tree, replace(batch.passes, previous=previous), load, batch.page_bytes,
            reward, left,
        )
        for previous, load in ((batch.previous, batch.load), (batch.done, batch.most))
    )  # fmt: skip
    return BatchProblems(bound, plan)


class _Batch:
    """Who runs, what they hold at the least, and since when nobody passes a node any more.

    Per node, `[num_nodes]`: `_num_running`: running requests that pass it; `_num_prompts`: those
    that pass it in their prompt; `_left`: the last request to start before the last of its passers
    left; `_done`: before the last of them was done; `_step`: that in which the first of them
    entered. Per pass: `previous` and `done` are these at the request's start, as a bound and as a
    plan may take them. `load`, `most`: what is held at the least and at the most.
    """

    def __init__(
        self, tree: PathTree, passes: Passes, requests: Sequence[Request], rules: BoundRules
    ) -> None:
        self.passes = passes
        self.previous = np.full(len(passes.node), NEVER, dtype=np.int64)
        self.page_bytes = rules.page_tokens * rules.kv_bytes_per_token
        self.done = self.previous.copy()
        self.left = [NEVER] * len(requests)
        self.load, self.most = (
            Load(*(np.zeros(len(requests), dtype=np.int64) for _ in fields(Load))) for _ in range(2)
        )
        self._rules = rules
        self._pages = tree.end - tree.start
        num_nodes = len(self._pages)
        self._num_running = np.zeros(num_nodes, dtype=np.int64)
        self._num_prompts = np.zeros(num_nodes, dtype=np.int64)
        self._left = np.full(num_nodes, NEVER, dtype=np.int64)
        self._done = np.full(num_nodes, NEVER, dtype=np.int64)
        self._step = np.full(num_nodes, _NOT_YET)
        self._prompt_rest, self._final_rest = _private_pages(tree, requests, rules)
        self._final_pages = self._final_rest + tree.end[tree.last_node]
        self._now = NEVER
        self._has_left = False  # somebody, since the last start
        self._num_pages = 0
        self._most_pages = 0
        self._num_states = 0

    def enter(self, place: int, step: int) -> None:
        """The request has its memory, for the first time or again."""
        row = slice(self.passes.first[place], self.passes.first[place + 1])
        nodes = self.passes.node[row]
        if place > self._now:
            self._end_interlude()
            self._now, self._has_left = place, False
            since = np.where(self._num_running[nodes] > 0, place, self._left[nodes])
            self.previous[row] = np.where(self._step[nodes] < step, since, NEVER)
            self._step[nodes] = np.minimum(self._step[nodes], step)
            self.done[row] = self._done[nodes]
        self._num_running[nodes] += 1
        prompt = nodes[self.passes.in_prompt[row]]
        fresh = prompt[self._num_prompts[prompt] == 0]
        self._num_prompts[prompt] += 1
        self._num_pages += int(self._pages[fresh].sum() + self._prompt_rest[place])
        self._most_pages += int(self._final_pages[place])
        self._num_states += self._rules.num_running_states
        self._note(self._num_pages)
        self._note_most()

    def leave(self, place: int, *, is_done: bool) -> None:
        """The request gives its memory back; if it is done it had memory for its whole output."""
        row = slice(self.passes.first[place], self.passes.first[place + 1])
        nodes, in_prompt = self.passes.node[row], self.passes.in_prompt[row]
        prompt, output = nodes[in_prompt], nodes[~in_prompt]
        if is_done:
            fresh = output[self._num_prompts[output] == 0]
            grown = self._final_rest[place] - self._prompt_rest[place]
            self._note(self._num_pages + int(self._pages[fresh].sum() + grown))
            self._done[nodes] = self.left[place] = self._now
        self._num_running[nodes] -= 1
        self._left[nodes] = self._now
        self._num_prompts[prompt] -= 1
        gone = prompt[self._num_prompts[prompt] == 0]
        self._num_pages -= int(self._pages[gone].sum() + self._prompt_rest[place])
        self._most_pages -= int(self._final_pages[place])
        self._num_states -= self._rules.num_running_states
        self._has_left = True
        self._note_most()

    def _note_most(self) -> None:
        """What idle content must leave room for; what begins to be idle now, from now on only."""
        most, now = self.most, self._now
        held = ((self._most_pages * self.page_bytes, "kv_bytes"), (self._num_states, "states"))
        for amount, name in held:
            for kind in ("events", "most", "interludes") if self._has_left else ("events", "most"):
                values = getattr(most, f"{kind}_{name}")
                values[now] = max(values[now], amount)

    def _note(self, num_pages: int) -> None:
        """Keep the moments since the last start at which most was held."""
        load, now = self.load, self._now
        state_bytes = self._rules.state_bytes
        kv_bytes = num_pages * self.page_bytes
        before = load.events_kv_bytes[now] + load.events_states[now] * state_bytes
        if kv_bytes + self._num_states * state_bytes >= before:
            load.events_kv_bytes[now], load.events_states[now] = kv_bytes, self._num_states
        load.most_kv_bytes[now] = max(load.most_kv_bytes[now], kv_bytes)
        load.most_states[now] = max(load.most_states[now], self._num_states)

    def _end_interlude(self) -> None:
        """Another request is about to start."""
        if self._now != NEVER:
            self.load.interludes_kv_bytes[self._now] = self._num_pages * self.page_bytes
            self.load.interludes_states[self._now] = self._num_states


def _private_pages(
    tree: PathTree, requests: Sequence[Request], rules: BoundRules
) -> tuple[Int64Array, Int64Array]:
    """Pages of each prompt, and of all that is computed, that nobody else can share."""
    prompt = np.array([request.num_prompt_tokens for request in requests], dtype=np.int64)
    final = np.array([request.num_final_tokens for request in requests], dtype=np.int64)
    page = rules.page_tokens
    return (
        -(-prompt // page) - tree.end[tree.prompt_node],
        -(-final // page) - tree.end[tree.last_node],
    )
