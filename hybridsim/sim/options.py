"""Limits under which the scheduler forms its steps."""

from dataclasses import dataclass
from enum import StrEnum

from hybridsim.errors import UserError, unknown_name


class Order(StrEnum):
    """Who is served first among the waiting, and preempted last among the running."""

    FCFS = "fcfs"  # by arrival
    PRIORITY = "priority"  # the smaller `Request.priority` first, then by arrival


@dataclass(frozen=True, slots=True)
class SchedulerOptions:
    """Limits of one engine step. Raises UserError naming the key for impossible values.

    `max_num_batched_tokens`: decode and prefill tokens of one step. Without `chunked_prefill` a
    prompt is computed whole in one step; the budget then only decides whether another prompt may
    join that step, and a prompt larger than the budget goes without company of other prompts.
    """

    max_num_seqs: int = 256
    max_num_batched_tokens: int = 8192
    chunked_prefill: bool = True
    order: str = Order.FCFS

    def __post_init__(self) -> None:
        if self.max_num_seqs < 1:
            raise UserError("scheduler.max_num_seqs", f"{self.max_num_seqs} is below 1")
        if self.max_num_batched_tokens < self.max_num_seqs:
            # Otherwise decodes alone could fill the budget and a begun prefill could starve.
            raise UserError(
                "scheduler.max_num_batched_tokens",
                f"{self.max_num_batched_tokens} is below max_num_seqs ({self.max_num_seqs}); "
                "allowed: at least one token for every running request",
            )
        if self.order not in list(Order):
            raise unknown_name("scheduler.order", self.order, list(Order))
