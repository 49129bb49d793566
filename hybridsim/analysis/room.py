"""How much memory is left for what requests leave behind, moment by moment."""

from dataclasses import dataclass
from math import inf

import numpy as np
from numpy.typing import NDArray

from hybridsim.analysis.reward import FloatArray
from hybridsim.request import Int64Array

BoolArray = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Load:
    """What running requests hold at the least, `[num_requests]` each; bytes of KV, and states.

    `events_*`: at the moment from request t's start until the next one's start at which most bytes
    are held in all; `most_*`: of each kind by itself. `interludes_*`: right before the next one
    starts.
    """

    events_kv_bytes: Int64Array
    events_states: Int64Array
    most_kv_bytes: Int64Array
    most_states: Int64Array
    interludes_kv_bytes: Int64Array
    interludes_states: Int64Array

    @staticmethod
    def in_turn(kv_bytes: Int64Array, states: Int64Array) -> "Load":
        """Of requests that run one after another, each to its end."""
        none = np.zeros_like(kv_bytes)
        return Load(kv_bytes, states, kv_bytes, states, none, none)

    def fits(
        self, state_bytes: int, capacity_bytes: float, state_capacity_bytes: float | None
    ) -> bool:
        """Whether the memory, one pool or two, has room for all of it at any time."""
        kv, states = self.most_kv_bytes, self.most_states * state_bytes
        if state_capacity_bytes is None:
            return bool((kv + states <= capacity_bytes).all())
        return bool((kv <= capacity_bytes).all() and (states <= state_capacity_bytes).all())


@dataclass(frozen=True, slots=True, eq=False)
class Room:
    """Bytes that idle content may hold over interludes and over events, for one kind of memory.

    Interlude s lies between the starts of request s and request s + 1, `[num_requests]` (the last
    one is never used). Event t is request t at work: intervals that begin before it and end behind
    it must leave room for it, unless it takes none (`is_bound` is False).
    `scale_bytes`: the size of the memory, in which a search counts.
    """

    scale_bytes: float
    interludes_bytes: FloatArray
    events_bytes: FloatArray
    is_bound: BoolArray


@dataclass(frozen=True, slots=True, eq=False)
class Rooms:
    """KV and states have a room each (split) or share one (`states` is None)."""

    kv: Room
    states: Room | None = None


def rooms(
    load: Load,
    state_bytes: int,
    capacity_bytes: float | FloatArray,
    state_capacity_bytes: float | None = None,
) -> Rooms:
    """One shared pool, or KV and states apart.

    capacity_bytes: a number, or one for each interlude, `[num_requests]`. A request that could
    never fit is refused and makes no room.
    """
    kv_between, states_between = load.interludes_kv_bytes, load.interludes_states * state_bytes
    if state_capacity_bytes is None:
        events = load.events_kv_bytes + load.events_states * state_bytes
        fits = events <= capacity_bytes
        return Rooms(_room(capacity_bytes, kv_between + states_between, events, fits))
    kv, states = load.most_kv_bytes, load.most_states * state_bytes
    fits = (kv <= capacity_bytes) & (states <= state_capacity_bytes)
    return Rooms(
        _room(capacity_bytes, kv_between, kv, fits),
        _room(state_capacity_bytes, states_between, states, fits),
    )


def _room(
    capacity_bytes: float | FloatArray, interludes: Int64Array, events: Int64Array, fits: BoolArray
) -> Room:
    """Events at which nothing is held bind no more than the interludes around them."""
    capacities = np.broadcast_to(np.asarray(capacity_bytes, dtype=np.float64), interludes.shape)
    is_bound = fits & (events > 0)
    return Room(
        float(capacities.max(initial=0.0)),
        np.maximum(capacities - interludes, 0.0),
        np.where(is_bound, capacities - events, 0.0),
        is_bound,
    )


class Free:
    """Bytes that are still free in each interlude and at each event.

    A holder from request `start` on, for `request`, also spans the events strictly in between.
    """

    def __init__(self, room: Room) -> None:
        self.interludes = room.interludes_bytes.copy()
        self.events = np.where(room.is_bound, room.events_bytes, np.inf)

    def least(self, start: int, stop: int, request: int) -> float:
        """The least free bytes over interludes `[start, stop)` and the events that go with them."""
        if start == stop:  # between runs that are held since the same request
            return inf
        least = float(self.interludes[start:stop].min())
        events = self.events[start + 1 : min(stop + 1, request)]
        return min(least, float(events.min())) if len(events) else least

    def take(self, start: int, stop: int, request: int, num_bytes: int) -> None:
        """Take bytes there; give them back where the number is negative."""
        self.interludes[start:stop] -= num_bytes
        self.events[start + 1 : min(stop + 1, request)] -= num_bytes
