"""`few_shot`: an instruction and worked examples shared by a task's requests, then one question.

Requests of a task show the first k of its examples, with k drawn for each request, so prompts of
a task part at the end of an example.
"""

from collections.abc import Iterator
from typing import Literal

from pydantic import Field, model_validator

from hybridsim.errors import UserError
from hybridsim.request import Request
from hybridsim.traces.draws import Contents, Lengths, Popularity, Segments
from hybridsim.traces.generators.base import MOST, GeneratorOptions, starts
from hybridsim.traces.reading import Source


class Options(GeneratorOptions):
    """Options of the `few_shot` generator."""

    generator: Literal["few_shot"] = "few_shot"
    num_requests: int = Field(default=1000, ge=1, le=MOST, description="requests to generate")
    num_tasks: int = Field(default=20, ge=1, le=MOST, description="different tasks")
    zipf: float = Field(default=0.8, ge=0, description="exponent of their popularity")
    max_shots: int = Field(default=8, ge=0, le=10_000, description="most examples in a prompt")
    min_shots: int = Field(default=0, ge=0, le=10_000, description="fewest examples in a prompt")
    instruction: Lengths = Field(
        default=Lengths(mean=150, sigma=0.4), description="tokens of a task"
    )
    example: Lengths = Field(
        default=Lengths(mean=250, sigma=0.5), description="tokens of an example"
    )
    question: Lengths = Field(
        default=Lengths(mean=120, sigma=0.6), description="tokens of a question"
    )
    output: Lengths = Field(default=Lengths(mean=60, sigma=0.6), description="tokens of an answer")

    @model_validator(mode="after")
    def _check_shots(self) -> "Options":
        if self.min_shots > self.max_shots:
            raise UserError(
                "trace.min_shots", f"{self.min_shots}; allowed: at most max_shots {self.max_shots}"
            )
        return self


def draw(source: Source, options: Options) -> Iterator[Request]:
    """The requests in arrival order; they stream."""
    rng = source.rng("few_shot")
    popularity = Popularity(options.num_tasks, options.zipf)
    tasks: list[Segments] = [
        [
            (f"task{task}", options.instruction.draw(rng)),
            *(
                (f"task{task}.example{shot}", options.example.draw(rng))
                for shot in range(options.max_shots)
            ),
        ]
        for task in range(options.num_tasks)
    ]
    contents = Contents(source.notes)
    times = starts(source, options)
    for number in range(options.num_requests):
        shown = tasks[popularity.draw(rng)][
            : 1 + int(rng.integers(options.min_shots, options.max_shots + 1))
        ]
        question = (f"question{number}", options.question.draw(rng))
        answer = (f"answer{number}", options.output.draw(rng))
        yield Request(
            f"r{number}",
            contents.spans([*shown, question]),
            contents.spans([answer]),
            arrival_s=next(times),
        )
