"""Runs on a Ray cluster. Ray is imported only here and only when asked for.

The result folder and the trace must lie where every node sees them under the same path.
"""

from collections.abc import Sequence
from typing import Any

from hybridsim.errors import UserError
from hybridsim.sweep.events import Event, Failed, OnEvent, Work
from hybridsim.sweep.local import _attempt


def import_ray() -> Any:
    try:
        import ray
    except ImportError:
        raise UserError(
            "--executor", "'ray' needs the package ray; allowed: local, or pip install ray"
        ) from None
    return ray


def run_ray(work: Work, indices: Sequence[int], on_event: OnEvent) -> None:
    """One task a run; uses the running cluster if there is one, else starts one here."""
    ray = import_ray()
    started = not ray.is_initialized()
    if started:
        ray.init(log_to_driver=False, logging_level="ERROR", include_dashboard=False)
    # A run is deterministic: a retry after its exception would only fail again.
    task = ray.remote(max_retries=1)(_work_remotely)
    try:
        shared = ray.put(work)
        pending = {task.remote(shared, index): index for index in indices}
        while pending:
            [done], _ = ray.wait(list(pending), num_returns=1)
            index = pending.pop(done)
            for event in _events_of(ray, done, index):
                on_event(event)
    finally:
        if started:
            ray.shutdown()


def _work_remotely(work: Work, index: int) -> list[Event]:
    events: list[Event] = []
    _attempt(work, index, events.append)
    return events


def _events_of(ray: Any, reference: Any, index: int) -> list[Event]:
    try:
        events: list[Event] = ray.get(reference)
    except ray.exceptions.RayError as error:
        return [Failed(index, f"{type(error).__name__}: {error}".splitlines()[0], str(error))]
    return events
