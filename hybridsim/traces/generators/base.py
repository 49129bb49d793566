"""What all workload generators share: arrival options and the clock of a session's turns."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from pydantic import Field

from hybridsim.request import Request
from hybridsim.traces.arrivals import arrival_times, in_arrival_order
from hybridsim.traces.draws import Contents, Segments
from hybridsim.traces.options import Arrivals, TraceOptions
from hybridsim.traces.reading import Source

MOST = 10_000_000  # of anything that is drawn; a workload is held in memory until it is written


class GeneratorOptions(TraceOptions):
    """Options of every generator."""

    arrivals: Arrivals = Field(
        default=Arrivals(process="poisson", rate_per_s=1.0),
        description="when requests, or sessions, arrive",
    )


class SessionOptions(GeneratorOptions):
    """Options of generators whose requests come in sessions."""

    num_sessions: int = Field(default=100, ge=1, le=MOST, description="sessions to generate")
    decode_s_per_token: float = Field(
        default=0.02, ge=0, allow_inf_nan=False, description="assumed time a generated token takes"
    )


def starts(source: Source, options: GeneratorOptions) -> Iterator[float]:
    """Arrival times by the options' process; the same ones whatever else the generator draws."""
    return arrival_times(options.arrivals, source.rng("generator arrivals"))


@dataclass(slots=True)
class SessionDraft:
    """The requests of one session as they come about. A turn is sent after the one before ends."""

    name: str
    contents: Contents
    start_s: float
    decode_s_per_token: float
    requests: list[Request] = field(default_factory=list)
    _free_s: float = 0.0

    def turn(self, prompt: Segments, output: tuple[str, int], wait_s: float) -> None:
        """One request `wait_s` after the end of the one before (the first one: at the start)."""
        number = len(self.requests)
        arrival_s = self._free_s + wait_s if number else self.start_s
        self.requests.append(
            Request(
                f"{self.name}/{number}",
                self.contents.spans(prompt),
                self.contents.spans([output]),
                arrival_s=arrival_s,
                session_id=self.name,
                previous=number - 1 if number else None,
                delay_s=wait_s if number else 0.0,
            )
        )
        self._free_s = arrival_s + output[1] * self.decode_s_per_token


def merged(drafts: Iterator[SessionDraft]) -> list[Request]:
    """All sessions' requests in arrival order, `previous` counted over the whole trace."""
    requests: list[Request] = []
    for draft in drafts:
        base = len(requests)
        for request in draft.requests:
            previous = None if request.previous is None else base + request.previous
            requests.append(replace(request, previous=previous))
    return in_arrival_order(requests)
