"""What a timed run returns."""

from dataclasses import dataclass

from hybridsim.records import BatchChange, RequestRecord, StepRecord


@dataclass(frozen=True, slots=True)
class SimResult:
    """`records` in the order of the requests, `steps` and `changes` of the batch in time.

    Times are seconds from the start.
    """

    records: list[RequestRecord]
    steps: list[StepRecord]
    changes: list[BatchChange]
