"""A request: what it asks for and when. It does not know caches, models or trace formats."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Int64Array = NDArray[np.int64]

NO_IDS: Int64Array = np.empty(0, dtype=np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class Spans:
    """A run of tokens, cut into spans of known content.

    `ids[i]` (int64) is the content id of the tokens `[ends[i-1], ends[i])`; `ends` (int64) rises
    strictly. A 512-token block, a 64-token block, a named segment and a single token are all spans.
    Two sequences agree up to a token when all spans up to it have equal ids and equal ends; in the
    first span whose ids agree but whose ends differ they agree up to the smaller end.
    Tokens in `[ends[-1], num_tokens)` have no known content: they take memory and time, and they
    match nothing. The arrays may be views of longer ones and must never be written to.
    """

    ids: Int64Array
    ends: Int64Array
    num_tokens: int

    @property
    def num_known_tokens(self) -> int:
        """Tokens whose content is known, always a prefix."""
        return int(self.ends[-1]) if len(self.ends) else 0

    def __len__(self) -> int:
        return len(self.ids)

    @staticmethod
    def unknown(num_tokens: int) -> "Spans":
        """A sequence of which only the length is known."""
        return Spans(NO_IDS, NO_IDS, num_tokens)

    @staticmethod
    def of(pairs: list[tuple[int, int]]) -> "Spans":
        """From `(content id, length in tokens)` pairs."""
        ids = np.array([content_id for content_id, _ in pairs], dtype=np.int64)
        ends = np.cumsum([length for _, length in pairs], dtype=np.int64)
        return Spans(ids, ends, int(ends[-1]) if len(ends) else 0)

    def joined(self, tail: "Spans") -> "Spans":
        """This sequence followed by `tail`. Content after an unknown stretch counts as unknown."""
        total = self.num_tokens + tail.num_tokens
        if self.num_known_tokens < self.num_tokens or not len(tail.ids):
            return Spans(self.ids, self.ends, total)
        ids = np.concatenate([self.ids, tail.ids])
        return Spans(ids, np.concatenate([self.ends, tail.ends + self.num_tokens]), total)


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """One call to the model.

    `prompt` holds the whole prompt, history included. `output` holds the generated tokens; where
    the trace knows only their number it is `Spans.unknown(n)`.
    `grid_tokens`: the trace can tell contents apart only at multiples of this many tokens (512 for
    Mooncake blocks, 1 for token ids), so a checkpoint is useful only there.
    `arrival_s`: seconds from trace start, None where the trace has no clock.
    `previous` and `delay_s`: index (in the trace) of the request after whose end this one is sent,
    and how long after; used by closed-loop arrivals only.
    `marks`: token positions at which the application asks for a checkpoint.
    """

    request_id: str
    prompt: Spans
    output: Spans
    arrival_s: float | None = None
    session_id: str | None = None
    grid_tokens: int = 1
    previous: int | None = None
    delay_s: float = 0.0
    marks: tuple[int, ...] = ()
    priority: int = 0

    @property
    def num_prompt_tokens(self) -> int:
        return self.prompt.num_tokens

    @property
    def num_output_tokens(self) -> int:
        return self.output.num_tokens

    @property
    def num_final_tokens(self) -> int:
        """Tokens that are computed in all: the last generated one is never fed back."""
        return self.prompt.num_tokens + max(self.output.num_tokens - 1, 0)


@dataclass(slots=True)
class Trace:
    """Requests in arrival order and what the reader has to say about them.

    `dropped`: reason -> number of records left out. `assumptions`: sentences that a user must know
    before believing a number (how outputs, partial blocks, session starts are treated).
    `has_content`: False when only lengths are known, so that no hit rate can be computed.
    """

    requests: list[Request]
    name: str
    format: str
    has_content: bool = True
    dropped: dict[str, int] = field(default_factory=dict)
    assumptions: list[str] = field(default_factory=list)
