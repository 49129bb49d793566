"""The queue in front of the batch: who is next, and whether asking again makes sense."""

from heapq import heappop, heappush

from hybridsim.sim.job import Job
from hybridsim.sim.options import Order


class WaitingQueue:
    """Jobs by rank. A preempted job has the rank it had: under FCFS that is in front of all who
    arrived after it."""

    def __init__(self, order: str) -> None:
        self._by_priority = order == Order.PRIORITY
        self._heap: list[tuple[tuple[int, int], Job]] = []
        self._blocked: Job | None = None

    def __len__(self) -> int:
        return len(self._heap)

    def rank(self, job: Job) -> tuple[int, int]:
        """The lower is served first and preempted last."""
        return (job.request.priority if self._by_priority else 0, job.order)

    def push(self, job: Job) -> None:
        heappush(self._heap, (self.rank(job), job))

    def pop(self) -> Job:
        return heappop(self._heap)[1]

    def head(self) -> Job | None:
        """Who is next; None if nobody is, or if it found no memory and none was freed since."""
        if not self._heap or self._heap[0][1] is self._blocked:
            return None
        return self._heap[0][1]

    def block_head(self) -> None:
        """The head found no memory. Until some is freed it would fail again, so nobody asks."""
        self._blocked = self._heap[0][1]

    def unblock(self) -> None:
        """Some memory was freed."""
        self._blocked = None
