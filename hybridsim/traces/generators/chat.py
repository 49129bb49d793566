"""`chat`: multi-turn conversations that grow by a question and an answer each turn."""

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from hybridsim.request import Request
from hybridsim.traces.draws import Contents, Lengths, Popularity, Segments
from hybridsim.traces.generators.base import MOST, SessionDraft, SessionOptions, merged, starts
from hybridsim.traces.reading import Source


class Options(SessionOptions):
    """Options of the `chat` generator."""

    generator: Literal["chat"] = "chat"
    mean_turns: float = Field(
        default=6.0, ge=1, le=1e4, description="mean turns of a session (geometric)"
    )
    num_systems: int = Field(default=3, ge=1, le=MOST, description="different system prompts")
    zipf: float = Field(default=1.0, ge=0, description="exponent of their popularity")
    system: Lengths = Field(
        default=Lengths(mean=800, sigma=0.5), description="tokens of a system prompt"
    )
    user: Lengths = Field(default=Lengths(mean=120, sigma=0.9), description="tokens of a question")
    output: Lengths = Field(default=Lengths(mean=250, sigma=0.8), description="tokens of an answer")
    think_s: float = Field(default=30.0, ge=0, description="mean pause before the next question")
    context_limit: int = Field(
        default=32768, ge=1, description="a session ends before it is longer"
    )


def draw(source: Source, options: Options) -> Iterator[Request]:
    """The requests of all sessions in arrival order."""
    rng = source.rng("chat")
    popularity = Popularity(options.num_systems, options.zipf)
    systems = [options.system.draw(rng) for _ in range(options.num_systems)]
    contents = Contents(source.notes)
    times = starts(source, options)

    def sessions() -> Iterator[SessionDraft]:
        for number in range(options.num_sessions):
            rank = popularity.draw(rng)
            name = f"chat{number}"
            draft = SessionDraft(name, contents, next(times), options.decode_s_per_token)
            history: Segments = [(f"system{rank}", systems[rank])]
            num_tokens = systems[rank]
            for turn in range(int(rng.geometric(1.0 / options.mean_turns))):
                user = (f"{name}.user{turn}", options.user.draw(rng))
                output = (f"{name}.output{turn}", options.output.draw(rng))
                num_tokens += user[1] + output[1]
                if turn and num_tokens > options.context_limit:
                    break
                draft.turn([*history, user], output, float(rng.exponential(options.think_s)))
                history += [user, output]
            yield draft

    yield from merged(sessions())
