"""What one engine step computes, and the queue of requests that wait for one."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from hybridsim.engines.vllm.sequence import Sequence


@dataclass(slots=True)
class Step:
    """What one step computes: new tokens of each request, drafts among them, who was preempted."""

    num_new_tokens: dict[Sequence, int] = field(default_factory=dict)
    num_drafts: dict[Sequence, int] = field(default_factory=dict)
    preempted: list[Sequence] = field(default_factory=list)
    budget: int = 0
    has_prefill: bool = False
    has_running: bool = False

    @property
    def num_tokens(self) -> int:
        return sum(self.num_new_tokens.values())

    def add(self, seq: Sequence, num_new_tokens: int, num_drafts: int) -> None:
        """Schedule a request: that many new tokens, so many drafts among them."""
        self.num_new_tokens[seq] = num_new_tokens
        self.budget -= num_new_tokens
        if num_drafts:
            self.num_drafts[seq] = num_drafts

    def undo(self, seq: Sequence) -> None:
        """Take a request out again that was preempted in the step that had scheduled it."""
        self.budget += self.num_new_tokens.pop(seq)
        self.num_drafts.pop(seq, None)


class WaitingQueue:
    """Requests that hold nothing: first come, first served, or the most urgent first.

    A preempted request comes back to the front; by priority, to its place.
    """

    def __init__(self, *, by_priority: bool) -> None:
        self.by_priority = by_priority
        self._queue: deque[Sequence] = deque()

    def __len__(self) -> int:
        return len(self._queue)

    def __iter__(self) -> Iterator[Sequence]:
        return iter(self._queue)

    @property
    def head(self) -> Sequence:
        return self._queue[0]

    def pop(self) -> Sequence:
        """Remove and return the head."""
        return self._queue.popleft()

    def remove(self, seq: Sequence) -> None:
        """Take one request out, wherever it stands."""
        self._queue.remove(seq)

    def add(self, seq: Sequence, *, first: bool = False) -> None:
        """Insert at the end, at the front, or by priority and arrival."""
        if self.by_priority:
            order = sorted([*self._queue, seq], key=lambda s: (s.priority, s.index))
            self._queue = deque(order)
        elif first:
            self._queue.appendleft(seq)
        else:
            self._queue.append(seq)

    def add_first(self, seqs: list[Sequence]) -> None:
        """Put back requests that were skipped, in their old order."""
        for seq in reversed(seqs):
            self.add(seq, first=True)
