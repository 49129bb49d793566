"""Content for traces that record lengths only. What it gives is an assumption, never a fact."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from pydantic import Field, field_validator

from hybridsim.errors import UserError, unknown_name
from hybridsim.request import Request
from hybridsim.traces.draws import Contents, Lengths, Popularity, Segments
from hybridsim.traces.options import Strict, TraceOptions, parse_options
from hybridsim.traces.reading import Source

PLACE = "trace.content"


class LengthsOptions(TraceOptions):
    """Options of formats without content."""

    content: dict[str, Any] | None = Field(
        default=None,
        description="multi_turn_chat, or a mapping with generator and its knobs; without it no hit "
        "rate can be had",
    )

    @field_validator("content", mode="before")
    @classmethod
    def _named(cls, content: object) -> object:
        """A text is short for {generator: text}."""
        return {"generator": content} if isinstance(content, str) else content

    @field_validator("content")
    @classmethod
    def _check(cls, content: dict[str, Any] | None) -> dict[str, Any] | None:
        """Find mistakes before any file is read."""
        if content is not None:
            _checked(content)
        return content


class SharedPrefix(Strict):
    """A Zipf-popular prefix, then tokens of the request's own."""

    num_prefixes: int = Field(default=100, ge=1, description="different prefixes")
    zipf: float = Field(default=1.0, ge=0, description="exponent of their popularity")
    prefix: Lengths = Field(default=Lengths(mean=1000, sigma=0.6), description="their tokens")
    max_share: float = Field(default=0.8, gt=0, lt=1, description="largest share of a prompt")


class MultiTurnChat(Strict):
    """Requests continue an earlier one whose prompt and output fit into their prompt."""

    continue_probability: float = Field(
        default=0.7, ge=0, le=1, description="of a prompt that could"
    )
    idle_s: float = Field(
        default=600.0, gt=0, description="sessions end after this time without a turn"
    )
    num_systems: int = Field(default=1, ge=1, description="different system prompts")
    zipf: float = Field(default=1.0, ge=0, description="exponent of their popularity")
    max_open_sessions: int = Field(
        default=256, ge=1, description="only the most recently used sessions can go on"
    )
    system_tokens: int = Field(default=200, ge=1, description="tokens of a system prompt")


class Unique(Strict):
    """No two requests share a token."""


def with_content(
    requests: Iterable[Request], source: Source, content: dict[str, Any] | None
) -> Iterator[Request]:
    """`requests` with prompts and outputs of equal lengths and made-up content; streams."""
    if content is None:
        source.notes.has_content = False
        source.notes.assume("The trace records lengths only; it has no content to share.")
        yield from requests
        return
    name, options = _checked(content)
    generate = GENERATORS[name][1]
    shown = ", ".join(f"{key}={value}" for key, value in options)
    source.notes.assume(f"Content is made up by {name} ({shown}); only lengths are recorded.")
    yield from generate(requests, options, source.rng(f"content {name}"), Contents(source.notes))


def _checked(content: dict[str, Any]) -> tuple[str, Strict]:
    knobs = dict(content)
    if "generator" not in knobs:
        names = ", ".join(sorted(GENERATORS))
        raise UserError(f"{PLACE}.generator", f"is missing; allowed: one of {names}")
    name = knobs.pop("generator")
    if not isinstance(name, str) or name not in GENERATORS:
        raise unknown_name(f"{PLACE}.generator", name, sorted(GENERATORS))
    return name, parse_options(GENERATORS[name][0], knobs, PLACE)


def _shared_prefix(
    requests: Iterable[Request], options: SharedPrefix, rng: np.random.Generator, contents: Contents
) -> Iterator[Request]:
    popularity = Popularity(options.num_prefixes, options.zipf)
    lengths = [options.prefix.draw(rng) for _ in range(options.num_prefixes)]
    for request in requests:
        rank = popularity.draw(rng)
        num_shared = min(lengths[rank], int(options.max_share * request.num_prompt_tokens))
        shared: Segments = [(f"prefix{rank}", num_shared)] if num_shared else []
        own = (f"{request.request_id}.prompt", request.num_prompt_tokens - num_shared)
        yield _filled(request, contents, [*shared, own])


def _unique(
    requests: Iterable[Request], options: Unique, rng: np.random.Generator, contents: Contents
) -> Iterator[Request]:
    for request in requests:
        own = (f"{request.request_id}.prompt", request.num_prompt_tokens)
        yield _filled(request, contents, [own])


@dataclass(slots=True)
class _Open:
    """A session that may go on."""

    name: str
    segments: Segments
    num_tokens: int
    last_index: int
    last_s: float


def _multi_turn_chat(
    requests: Iterable[Request],
    options: MultiTurnChat,
    rng: np.random.Generator,
    contents: Contents,
) -> Iterator[Request]:
    """Which of the fitting sessions goes on is drawn uniformly."""
    popularity = Popularity(options.num_systems, options.zipf)
    sessions: list[_Open] = []
    for index, request in enumerate(requests):
        now_s = request.arrival_s or 0.0
        live = sessions[-options.max_open_sessions :]
        sessions = [s for s in live if now_s - s.last_s <= options.idle_s]
        fitting = [s for s in sessions if s.num_tokens < request.num_prompt_tokens]
        if fitting and rng.random() < options.continue_probability:
            session = fitting[int(rng.integers(len(fitting)))]
            previous, gap_s = session.last_index, now_s - session.last_s
            sessions.remove(session)
        else:
            num_system = min(options.system_tokens, request.num_prompt_tokens - 1)
            system = (f"system{popularity.draw(rng)}", num_system)
            segments = [system] if num_system else []
            session = _Open(f"chat{index}", segments, num_system, index, now_s)
            previous, gap_s = None, 0.0
        sessions.append(session)  # the list is in order of last use
        new = (f"{request.request_id}.user", request.num_prompt_tokens - session.num_tokens)
        session.segments.append(new)
        filled = _filled(request, contents, session.segments)
        yield replace(filled, session_id=session.name, previous=previous, delay_s=gap_s)
        if request.num_output_tokens:
            session.segments.append((f"{request.request_id}.output", request.num_output_tokens))
        session.num_tokens = request.num_prompt_tokens + request.num_output_tokens
        session.last_index, session.last_s = index, now_s


def _filled(request: Request, contents: Contents, prompt: Segments) -> Request:
    num_output = request.num_output_tokens
    output = contents.spans([(f"{request.request_id}.output", num_output)] if num_output else [])
    return replace(request, prompt=contents.spans(prompt), output=output)


GENERATORS: dict[str, tuple[type[Strict], Callable[..., Iterator[Request]]]] = {
    "multi_turn_chat": (MultiTurnChat, _multi_turn_chat),
    "shared_prefix": (SharedPrefix, _shared_prefix),
    "unique": (Unique, _unique),
}


def no_content_error(name: str) -> UserError:
    """Why a lengths-only trace has no hit rate, and what to do about it."""
    return UserError(
        PLACE,
        f"{name} records lengths only, so it has no hit rate; allowed: a trace with content, "
        "mode: timed for times alone, or content made up by a generator, such as "
        f"content: multi_turn_chat ({', '.join(sorted(GENERATORS))})",
    )
