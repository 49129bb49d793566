"""`shared_prefix`: a Zipf-popular system prompt or document, then a question of one's own."""

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from hybridsim.request import Request
from hybridsim.traces.draws import Contents, Lengths, Popularity
from hybridsim.traces.generators.base import MOST, GeneratorOptions, starts
from hybridsim.traces.reading import Source


class Options(GeneratorOptions):
    """Options of the `shared_prefix` generator."""

    generator: Literal["shared_prefix"] = "shared_prefix"
    num_requests: int = Field(default=1000, ge=1, le=MOST, description="requests to generate")
    num_prefixes: int = Field(default=50, ge=1, le=MOST, description="different shared prefixes")
    zipf: float = Field(default=0.9, ge=0, description="exponent of their popularity")
    prefix: Lengths = Field(default=Lengths(mean=2000, sigma=0.6), description="tokens of a prefix")
    suffix: Lengths = Field(
        default=Lengths(mean=200, sigma=0.7), description="tokens of a question"
    )
    output: Lengths = Field(default=Lengths(mean=200, sigma=0.7), description="tokens of an answer")


def draw(source: Source, options: Options) -> Iterator[Request]:
    """The requests in arrival order; they stream."""
    rng = source.rng("shared_prefix")
    popularity = Popularity(options.num_prefixes, options.zipf)
    prefixes = [options.prefix.draw(rng) for _ in range(options.num_prefixes)]
    contents = Contents(source.notes)
    times = starts(source, options)
    for number in range(options.num_requests):
        rank = popularity.draw(rng)
        question = (f"question{number}", options.suffix.draw(rng))
        answer = (f"answer{number}", options.output.draw(rng))
        yield Request(
            f"r{number}",
            contents.spans([(f"prefix{rank}", prefixes[rank]), question]),
            contents.spans([answer]),
            arrival_s=next(times),
        )
