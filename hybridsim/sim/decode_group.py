"""The requests that are decoding, kept so that a decode step costs no work per request.

All members advance by one token a step, so the group has one clock (`num_steps`) and a member is
described by constants: its tokens minus the clock, the clock at which it ends, and the clock modulo
the page size at which it needs a page. It knows neither cache nor time.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from operator import itemgetter

from hybridsim.sim.job import Job


@dataclass(frozen=True, slots=True)
class _Member:
    """`offset_tokens`: tokens computed minus the group's clock. `phase`: see `needing_page`."""

    job: Job
    offset_tokens: int
    joined_at: int
    phase: int


class DecodeGroup:
    """Decoding jobs and the clock they share. Adding, removing and finding the next event cost
    O(log members); a step costs O(1)."""

    def __init__(self, page_tokens: int) -> None:
        self.num_steps = 0
        self.context_tokens = 0  # tokens computed, summed over members
        self._page_tokens = page_tokens
        self._num_joined = 0
        self._members: dict[int, _Member] = {}
        self._key_of: dict[Job, int] = {}
        self._by_phase: defaultdict[int, dict[int, _Member]] = defaultdict(dict)
        # Heaps of (clock, key). A key is never used twice, so a member that has left is told by
        # its key being gone.
        self._ends: list[tuple[int, int]] = []
        self._stops: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return len(self._members)

    def __contains__(self, job: Job) -> bool:
        return job in self._key_of

    def num_tokens(self, job: Job) -> int:
        """Tokens that `job` has computed by now."""
        return self._members[self._key_of[job]].offset_tokens + self.num_steps

    def add(self, job: Job) -> None:
        """Let `job`, whose prefill is complete, decode what it still has to generate (>= 1)."""
        key = self._num_joined
        self._num_joined += 1
        offset = job.num_computed - self.num_steps
        member = _Member(job, offset, self.num_steps, -offset % self._page_tokens)
        self._members[key] = member
        self._key_of[job] = key
        self._by_phase[member.phase][key] = member
        self.context_tokens += job.num_computed
        remaining = job.request.num_output_tokens - job.num_generated
        heappush(self._ends, (self.num_steps + remaining, key))
        self._push_stop(key)

    def remove(self, job: Job) -> None:
        """Take `job` out and write its counters back to it."""
        key = self._key_of.pop(job)
        member = self._members.pop(key)
        del self._by_phase[member.phase][key]
        job.num_computed = member.offset_tokens + self.num_steps
        job.num_generated += self.num_steps - member.joined_at
        self.context_tokens -= job.num_computed

    def advance(self, num_steps: int) -> None:
        """Every member decodes `num_steps` tokens."""
        self.num_steps += num_steps
        self.context_tokens += num_steps * len(self._members)

    def needing_page(self) -> list[Job]:
        """Members whose pages are full when the next step starts, in order of joining.

        A member with t tokens is full when t is a multiple of the page size, and t is its offset
        plus the clock: so it needs a page whenever the clock has its phase.
        """
        return [
            member.job for member in self._by_phase[self.num_steps % self._page_tokens].values()
        ]

    def page_needs(self, num_steps: int) -> Iterator[tuple[int, Job, int]]:
        """(steps ahead, member, tokens it must have room for), in order of time and joining.

        For the steps after the next one, up to `num_steps` in all. The group must not change
        meanwhile. O(pages needed), however many steps that takes.
        """
        page = self._page_tokens
        phases = [(phase, members) for phase, members in self._by_phase.items() if members]
        due = sorted(
            (((phase - self.num_steps - 1) % page + 1, members) for phase, members in phases),
            key=itemgetter(0),
        )
        for lap in range(0, num_steps, page):
            for ahead, members in due:
                if lap + ahead >= num_steps:
                    break
                clock = self.num_steps + lap + ahead
                for member in members.values():
                    yield lap + ahead, member.job, member.offset_tokens + clock + 1

    def steps_to_event(self) -> int:
        """Decode steps until a member ends or reaches a planned checkpoint. Needs a member."""
        clocks = [heap[0][0] for heap in (self._ends, self._stops) if self._tidy(heap)]
        return min(clocks) - self.num_steps

    def pop_at_stop(self) -> list[tuple[Job, int]]:
        """Members that have computed exactly up to a planned checkpoint, and its position."""
        reached = []
        while self._tidy(self._stops) and self._stops[0][0] == self.num_steps:
            key = heappop(self._stops)[1]
            job = self._members[key].job
            reached.append((job, job.stops.pop()))
            self._push_stop(key)
        return reached

    def pop_ended(self) -> list[Job]:
        """Members that have generated their whole output; they leave the group."""
        ended = []
        while self._tidy(self._ends) and self._ends[0][0] == self.num_steps:
            ended.append(self._members[heappop(self._ends)[1]].job)
            self.remove(ended[-1])
        return ended

    def _push_stop(self, key: int) -> None:
        member = self._members[key]
        if member.job.stops:
            heappush(self._stops, (member.job.stops[-1] - member.offset_tokens, key))

    def _tidy(self, heap: list[tuple[int, int]]) -> bool:
        """Drop entries of members that have left from the top; whether anything remains."""
        while heap and heap[0][1] not in self._members:
            heappop(heap)
        return bool(heap)
