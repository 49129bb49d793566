"""`messages`: OpenAI-style chat logs, one request (or one conversation) a line.

`{"messages": [{"role", "content"}, ..]}` and, optional, `tools`, `output` (text, message or number
of tokens; else a closing assistant message is the output), `id`, `session_id`, `timestamp`
(seconds). `unit: conversation` makes each assistant message a request of its own.

A message becomes start mark, role, text, end mark; a prompt ends with the opening of the answer.
So a turn's prompt holds the whole prompt and output of the turn before. `tokenizer` names a
Hugging Face tokenizer or a tokenizer.json file; without it `words` is used, see `WordTokenizer`.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from pydantic import Field

from hybridsim.request import Int64Array, Request, Spans
from hybridsim.traces.arrivals import in_arrival_order
from hybridsim.traces.options import TraceOptions
from hybridsim.traces.reading import Source
from hybridsim.traces.row import MAX_TOKENS, Row, shown
from hybridsim.traces.tokenizers import Tokenizer, make_tokenizer
from hybridsim.traces.tokens import token_spans

_MESSAGES = 'a list of {"role", "content"} objects with at least one message'


class Options(TraceOptions):
    """Options of `messages`."""

    tokenizer: str = Field(
        default="words", description="words, a tokenizer.json file, or a Hugging Face model name"
    )
    unit: Literal["request", "conversation"] = Field(
        default="request",
        description="what a line is; conversation: a request for each assistant message",
    )
    output_tokens: int = Field(
        default=256, ge=0, description="output of requests for which the log has none"
    )


def read(source: Source, options: Options) -> Iterator[Request]:
    """Requests of a chat log, sorted by arrival where it has times; it holds the whole trace."""
    template = _Template(make_tokenizer(options.tokenizer))
    lines = _Lines()
    requests = []
    for row in source.rows():
        messages = _messages(row)
        calls = _calls(row, messages, options)
        if not calls:
            source.notes.drop("conversation without an assistant message")
        for number, (num_before, output) in enumerate(calls):
            prompt = template.prompt(row, messages[:num_before])
            spans = _output(template, row, output, options)
            requests.append(lines.request(row, number if len(calls) > 1 else None, prompt, spans))
    _assume(source, options, template)
    yield from _linked(in_arrival_order(requests))


def _assume(source: Source, options: Options, template: "_Template") -> None:
    source.notes.assume(
        f"Texts are tokenised by {template.tokenizer.name}, message by message, in ChatML order."
    )
    if options.tokenizer == "words":
        source.notes.assume("The tokenizer words only estimates lengths; equality is exact.")


def _messages(row: Row) -> list[dict[str, Any]]:
    messages = row.fields.get("messages")
    if not isinstance(messages, list) or not messages:
        raise row.wrong("messages", _MESSAGES)
    for message in messages:
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise row.error(f"messages holds {shown(message)}; allowed: {_MESSAGES}")
    return messages


def _calls(row: Row, messages: list[dict[str, Any]], options: Options) -> list[tuple[int, Any]]:
    """(number of messages in the prompt, output) for each request of the line.

    The output is a message, a text, a number of tokens, or None.
    """
    if options.unit == "conversation":
        return [
            (index, message)
            for index, message in enumerate(messages)
            if message["role"] == "assistant" and index
        ]
    if row.has("output"):
        output = row.fields["output"]
        if isinstance(output, str | dict) or (type(output) is int and 0 <= output < MAX_TOKENS):
            return [(len(messages), output)]
        raise row.wrong("output", "a text, a message, or a number of tokens")
    if messages[-1]["role"] == "assistant" and len(messages) > 1:
        return [(len(messages) - 1, messages[-1])]
    return [(len(messages), None)]


def _output(template: "_Template", row: Row, output: Any, options: Options) -> Spans:
    if output is None or isinstance(output, int):
        return Spans.unknown(options.output_tokens if output is None else output)
    message = {"content": output} if isinstance(output, str) else output
    return token_spans(np.array(template.answer(row, message), dtype=np.int64))


class _Lines:
    """Ids, sessions and arrivals of requests; whom they follow is not yet known."""

    def __init__(self) -> None:
        self._has_times: bool | None = None

    def request(self, row: Row, number: int | None, prompt: Int64Array, output: Spans) -> Request:
        """The request of a line, or number `number` of its requests."""
        line_id = row.text("id") if row.has("id") else str(row.line_number)
        session = row.text("session_id") if row.has("session_id") else None
        if session is None and number is not None:
            session = line_id
        return Request(
            line_id if number is None else f"{line_id}/{number}",
            token_spans(prompt),
            output,
            arrival_s=self._arrival_s(row),
            session_id=session,
        )

    def _arrival_s(self, row: Row) -> float | None:
        arrival_s = row.number("timestamp") if row.has("timestamp") else None
        if self._has_times is not None and self._has_times != (arrival_s is not None):
            raise row.wrong("timestamp", "seconds on every line, or on none")
        self._has_times = arrival_s is not None
        return arrival_s


def _linked(requests: list[Request]) -> Iterator[Request]:
    """Requests in their order, from 0 s; those of one session follow each other."""
    first_s = requests[0].arrival_s or 0.0 if requests else 0.0
    last_of: dict[str, int] = {}
    for index, request in enumerate(requests):
        session, arrival_s = request.session_id, request.arrival_s
        previous = None if session is None else last_of.get(session)
        if session is not None:
            last_of[session] = index
        gap_s = 0.0
        if previous is not None:
            gap_s = (arrival_s or 0.0) - (requests[previous].arrival_s or 0.0)
        if arrival_s is not None:
            arrival_s -= first_s
        yield replace(request, arrival_s=arrival_s, previous=previous, delay_s=gap_s)


class _Template:
    """ChatML around tokenised texts. The marks are ids of their own, outside every vocabulary."""

    START, END = (1 << 60), (1 << 60) + 1

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer

    def prompt(self, row: Row, messages: list[dict[str, Any]]) -> Int64Array:
        """Tools first, then every message, then the opening of the answer."""
        ids: list[int] = []
        if row.has("tools"):
            tools = row.canonical(row.fields["tools"]).decode()
            ids += self._message("tools", tools)
        for message in messages:
            ids += self._message(message["role"], _text(row, message))
        ids += self._opening("assistant")
        return np.array(ids, dtype=np.int64)

    def answer(self, row: Row, message: dict[str, Any]) -> list[int]:
        """What the model generates: the text and the end mark."""
        return [*self.tokenizer.encode(_text(row, message)), self.END]

    def _message(self, role: str, text: str) -> list[int]:
        return [*self._opening(role), *self.tokenizer.encode(text), self.END]

    def _opening(self, role: str) -> list[int]:
        return [self.START, *self.tokenizer.encode(role)]


def _text(row: Row, message: dict[str, Any]) -> str:
    """The text of a message; parts that are no text, and tool calls, as JSON."""
    content = message.get("content")
    parts = content if isinstance(content, list) else [content]
    texts = [_part_text(row, part) for part in parts if part is not None]
    extra = {key: message[key] for key in ("tool_calls", "function_call") if message.get(key)}
    if extra:
        texts.append(row.canonical(extra).decode())
    return "".join(texts)


def _part_text(row: Row, part: Any) -> str:
    if isinstance(part, str):
        return part
    if isinstance(part, dict):
        text = part.get("text")
        return text if isinstance(text, str) else row.canonical(part).decode()
    raise row.error(f"content holds {shown(part)}; allowed: a text, or a list of parts")
