"""Arrival times: drawn from a seeded process, given, or recorded; for requests or for sessions."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from hybridsim.errors import UserError
from hybridsim.files import read_whole
from hybridsim.request import Request
from hybridsim.traces.options import Arrivals


def arrival_times(
    arrivals: Arrivals, rng: np.random.Generator, place: str = "trace.arrivals"
) -> Iterator[float]:
    """Endless rising times in seconds for a drawn process; the given ones for `given`.

    poisson: exponential gaps of mean 1/rate. gamma: gaps of the same mean with coefficient of
    variation `cv` (shape 1/cv^2). The first arrival comes after the first gap.
    """
    check_arrivals(arrivals, may_be_recorded=False, place=place)
    if arrivals.process == "given":
        yield from arrivals.times_s or ()
        raise UserError(
            f"{place}.times_s",
            f"holds {len(arrivals.times_s or ())} times; allowed: at least one an arrival",
        )
    assert arrivals.rate_per_s is not None
    shape = 1.0 if arrivals.process == "poisson" else arrivals.cv**-2
    now_s = 0.0
    while True:
        now_s += float(rng.gamma(shape, 1.0 / (shape * arrivals.rate_per_s)))
        yield now_s


def check_arrivals(
    arrivals: Arrivals, *, may_be_recorded: bool, place: str = "trace.arrivals"
) -> None:
    """UserError where the process lacks what it needs; before any file is read."""
    if arrivals.process == "recorded":
        if may_be_recorded:
            return
        raise UserError(
            f"{place}.process",
            "'recorded', but nothing is recorded; allowed: poisson, gamma, given",
        )
    if arrivals.process != "given" and arrivals.rate_per_s is None:
        raise UserError(f"{place}.rate_per_s", "missing; allowed: arrivals a second, above 0")
    if arrivals.process == "given":
        _check_times(arrivals.times_s, f"{place}.times_s")


def _check_times(times_s: tuple[float, ...] | None, place: str) -> None:
    if times_s is None:
        raise UserError(place, "missing; allowed: a list of times in seconds")
    last_s = 0.0
    for index, time_s in enumerate(times_s):
        if not last_s <= time_s < float("inf"):
            raise UserError(
                place, f"time {index + 1} is {time_s}; allowed: seconds from 0 in rising order"
            )
        last_s = time_s


def retimed(
    requests: Iterable[Request], arrivals: Arrivals, rng: np.random.Generator
) -> Iterator[Request]:
    """`requests` with the arrival times that the options ask for, in arrival order.

    `of: sessions` keeps recorded distances within a session and moves its start; it holds the
    whole trace. The other ways stream.
    """
    if arrivals.process == "recorded":
        if arrivals.speedup == 1.0:
            yield from requests
            return
        for request in requests:
            arrival_s = request.arrival_s
            yield (
                request
                if arrival_s is None
                else replace(request, arrival_s=arrival_s / arrivals.speedup)
            )
        return
    times = arrival_times(arrivals, rng)
    if arrivals.of == "requests":
        yield from _requests_retimed(requests, times)
        return
    held = list(requests)
    if arrivals.of == "sessions" or any(request.previous is not None for request in held):
        yield from _sessions_retimed(held, times)
    else:
        yield from _requests_retimed(held, times)


def _requests_retimed(requests: Iterable[Request], times: Iterator[float]) -> Iterator[Request]:
    for request in requests:
        yield replace(request, arrival_s=next(times))


def _sessions_retimed(requests: list[Request], times: Iterator[float]) -> list[Request]:
    starts_s: dict[str, tuple[float, float]] = {}
    moved = []
    for index, request in enumerate(requests):
        key = request.session_id if request.session_id is not None else f"\0{index}"
        recorded_s = request.arrival_s or 0.0
        if key not in starts_s:
            starts_s[key] = (recorded_s, next(times))
        old_s, new_s = starts_s[key]
        moved.append(replace(request, arrival_s=new_s + recorded_s - old_s))
    return in_arrival_order(moved)


def in_arrival_order(requests: list[Request]) -> list[Request]:
    """Stable sort by arrival; `previous` still points to the same request afterwards.

    Requests without arrival keep their place among themselves, before all others. UserError where
    a request arrives before the one that it continues.
    """
    order = sorted(range(len(requests)), key=lambda i: _arrival_or_start(requests[i]))
    new_index = {old: new for new, old in enumerate(order)}
    for old in order:
        before = requests[old].previous
        if before is not None and new_index[before] > new_index[old]:
            late, early = requests[before], requests[old]
            raise UserError(
                "trace.sort",
                f"request {early.request_id} (at {early.arrival_s:g} s) continues "
                f"{late.request_id}, which arrives later ({late.arrival_s:g} s); allowed: a turn "
                "at or after the one before it",
            )
    return [_relinked(requests[old], new_index) for old in order]


def _arrival_or_start(request: Request) -> float:
    return float("-inf") if request.arrival_s is None else request.arrival_s


def _relinked(request: Request, new_index: dict[int, int]) -> Request:
    if request.previous is None or new_index[request.previous] == request.previous:
        return request
    return replace(request, previous=new_index[request.previous])


def read_times(path: Path | None) -> tuple[float, ...]:
    """Arrival times in seconds, one a line, from a file; their order is checked when used."""
    if path is None:
        raise UserError("--times", "missing; allowed: a file with one time in seconds a line")
    if not path.is_file():
        raise UserError(str(path), "no such file; allowed: one time in seconds a line")
    times = []
    for number, line in enumerate(read_whole(path).decode(errors="replace").splitlines(), start=1):
        if line.strip():
            try:
                times.append(float(line))
            except ValueError:
                raise UserError(f"{path}:{number}", f"{line!r}; allowed: seconds") from None
    return tuple(times)
