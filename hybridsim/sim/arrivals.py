"""When requests are sent: at recorded times, after an earlier request's end, or one at a time.

All three are one plan: some requests start at given times, the others follow the end of another.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import isfinite

from hybridsim.errors import UserError, unknown_name
from hybridsim.request import Request

LONGEST_S = 1e12  # beyond it a float's clock no longer tells steps apart


class Arrivals(StrEnum):
    """Names of the ways to send a trace."""

    RECORDED = "recorded"  # open loop: at `Request.arrival_s`
    CLOSED_LOOP = "closed_loop"  # `delay_s` after the end of `previous`; first turns as recorded
    SERIAL = "serial"  # each at the moment when the one before it in the trace ends


@dataclass(frozen=True, slots=True)
class ArrivalPlan:
    """`starts`: (time in s, request index), times rising. `followers[i]`: (delay in s, request
    index) of those sent when request i has ended, finished or refused."""

    starts: list[tuple[float, int]]
    followers: list[list[tuple[float, int]]]


def plan_arrivals(
    requests: Sequence[Request], arrivals: str, rate_scale: float = 1.0
) -> ArrivalPlan:
    """Say who is sent when. `rate_scale`: 2 sends twice as fast (times and delays are halved).

    Raises UserError where the trace lacks a time or a `previous` is impossible.
    """
    if arrivals not in list(Arrivals):
        raise unknown_name("arrivals.mode", arrivals, list(Arrivals))
    if not (isfinite(rate_scale) and rate_scale > 0):
        raise UserError("arrivals.rate_scale", f"{rate_scale} is not a number above 0")
    starts: list[tuple[float, int]] = []
    followers: list[list[tuple[float, int]]] = [[] for _ in requests]
    for index, request in enumerate(requests):
        after = _previous(arrivals, index, request)
        if after is None:
            starts.append((_start_s(arrivals, request) / rate_scale, index))
        else:
            delay_s = request.delay_s if arrivals == Arrivals.CLOSED_LOOP else 0.0
            followers[after].append((_time(request, "delay_s", delay_s) / rate_scale, index))
    latest_s = max((at_s for at_s, _ in starts), default=0.0)
    latest_s += sum(delay_s for row in followers for delay_s, _ in row)
    if latest_s > LONGEST_S:
        raise UserError(
            "arrivals.rate_scale", f"{rate_scale} puts arrivals {latest_s:.3g} s away; "
            f"allowed: at most {LONGEST_S:.0e} s"
        )  # fmt: skip
    starts.sort()  # equal times stay in trace order
    return ArrivalPlan(starts, followers)


def _previous(arrivals: str, index: int, request: Request) -> int | None:
    if arrivals == Arrivals.SERIAL:
        return index - 1 if index else None
    if arrivals == Arrivals.RECORDED or request.previous is None:
        return None
    if not 0 <= request.previous < index:
        raise UserError(
            f"request {request.request_id}",
            f"previous {request.previous} is not an earlier request; allowed: 0 to {index - 1}",
        )
    return request.previous


def _start_s(arrivals: str, request: Request) -> float:
    if arrivals == Arrivals.SERIAL:
        return 0.0
    if request.arrival_s is None:
        raise UserError(
            f"request {request.request_id}",
            f"it has no arrival_s, which arrivals.mode {arrivals} needs; a trace without times "
            "can be sent with arrivals.mode serial",
        )
    return _time(request, "arrival_s", request.arrival_s)


def _time(request: Request, name: str, value_s: float) -> float:
    if not (isfinite(value_s) and value_s >= 0):
        raise UserError(f"request {request.request_id}", f"{name} {value_s} is not a number >= 0")
    return value_s
