"""`coding_agent`: tool loops on top of a shared tool and system prompt, compacted when too long.

Each step adds a tool's result (or, now and then, a person's message) and the model's answer. When
the context would exceed its limit, the history behind the system prompt is replaced by a summary:
the prefix breaks there, as it does in real agents.
"""

from collections.abc import Iterator
from typing import Literal

import numpy as np
from pydantic import Field

from hybridsim.request import Request
from hybridsim.traces.draws import Contents, Lengths, Popularity, Segments
from hybridsim.traces.generators.base import MOST, SessionDraft, SessionOptions, merged, starts
from hybridsim.traces.reading import Source


class Options(SessionOptions):
    """Options of the `coding_agent` generator."""

    generator: Literal["coding_agent"] = "coding_agent"
    mean_steps: float = Field(
        default=30.0, ge=1, le=1e5, description="mean steps of a session (geometric)"
    )
    num_agents: int = Field(
        default=2, ge=1, le=MOST, description="different tool and system prompts"
    )
    zipf: float = Field(default=1.0, ge=0, description="exponent of their popularity")
    system: Lengths = Field(
        default=Lengths(mean=12000, sigma=0.2), description="tokens of tools + system"
    )
    task: Lengths = Field(
        default=Lengths(mean=1500, sigma=0.8), description="tokens of the first message"
    )
    tool_result: Lengths = Field(
        default=Lengths(mean=1500, sigma=1.2, max=16000), description="tokens of a tool's result"
    )
    human: Lengths = Field(
        default=Lengths(mean=80, sigma=0.8), description="tokens of a person's message"
    )
    output: Lengths = Field(default=Lengths(mean=300, sigma=0.8), description="tokens of an answer")
    human_probability: float = Field(
        default=0.1, ge=0, le=1, description="of a step led by a person"
    )
    tool_s: float = Field(default=4.0, ge=0, description="mean time of a tool")
    human_s: float = Field(default=60.0, ge=0, description="mean time of a person")
    context_limit: int = Field(
        default=64000, ge=1, description="compact before the prompt is longer"
    )
    summary: Lengths = Field(
        default=Lengths(mean=2000, sigma=0.4), description="tokens of a summary"
    )


def draw(source: Source, options: Options) -> Iterator[Request]:
    """The requests of all sessions in arrival order."""
    rng = source.rng("coding_agent")
    popularity = Popularity(options.num_agents, options.zipf)
    systems = [options.system.draw(rng) for _ in range(options.num_agents)]
    contents = Contents(source.notes)
    times = starts(source, options)

    def sessions() -> Iterator[SessionDraft]:
        for number in range(options.num_sessions):
            rank = popularity.draw(rng)
            draft = SessionDraft(
                f"agent{number}", contents, next(times), options.decode_s_per_token
            )
            _run(draft, (f"tools+system{rank}", systems[rank]), options, rng)
            yield draft

    yield from merged(sessions())


def _run(
    draft: SessionDraft, system: tuple[str, int], options: Options, rng: np.random.Generator
) -> None:
    """Fill one session."""
    history: Segments = [system]
    num_steps = int(rng.geometric(1.0 / options.mean_steps))
    for step in range(num_steps):
        added, wait_s = _next_message(f"{draft.name}.{step}", step, options, rng)
        output = (f"{draft.name}.{step}.output", options.output.draw(rng))
        if _num_tokens(history) + added[1] + output[1] > options.context_limit and step:
            history = [system, (f"{draft.name}.{step}.summary", options.summary.draw(rng))]
        draft.turn([*history, added], output, wait_s)
        history += [added, output]


def _next_message(
    name: str, step: int, options: Options, rng: np.random.Generator
) -> tuple[tuple[str, int], float]:
    """What the step adds to the prompt, and the time before it comes."""
    if step == 0:
        return (f"{name}.task", options.task.draw(rng)), 0.0
    if rng.random() < options.human_probability:
        return (f"{name}.human", options.human.draw(rng)), float(rng.exponential(options.human_s))
    return (f"{name}.tool", options.tool_result.draw(rng)), float(rng.exponential(options.tool_s))


def _num_tokens(segments: Segments) -> int:
    return sum(length for _, length in segments)
