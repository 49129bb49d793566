"""Seeded workload generators: the format `generate`, which reads no file.

`{format: generate, generator: chat, num_sessions: 100, ...}`; the other options are the
generator's own.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from hybridsim.errors import unknown_name
from hybridsim.request import Request
from hybridsim.traces.generators import chat, coding_agent, few_shot, shared_prefix
from hybridsim.traces.generators.base import GeneratorOptions
from hybridsim.traces.reading import Source

Draw = Callable[[Source, Any], Iterator[Request]]

GENERATORS: dict[str, tuple[type[GeneratorOptions], Draw]] = {
    "chat": (chat.Options, chat.draw),
    "shared_prefix": (shared_prefix.Options, shared_prefix.draw),
    "coding_agent": (coding_agent.Options, coding_agent.draw),
    "few_shot": (few_shot.Options, few_shot.draw),
}


def options_of(options: Mapping[str, object]) -> type[GeneratorOptions]:
    """The kind of options that the generator takes which `options["generator"]` names."""
    name = options.get("generator")
    if not isinstance(name, str) or name not in GENERATORS:
        raise unknown_name("trace.generator", name, sorted(GENERATORS))
    return GENERATORS[name][0]


def draw(source: Source, options: Any) -> Iterator[Request]:
    """The workload that `options` describe, in arrival order; equal for equal seeds."""
    shown = options.generator
    source.notes.assume(f"A made-up workload of the generator {shown}, seed {source.seed}.")
    yield from GENERATORS[options.generator][1](source, options)
