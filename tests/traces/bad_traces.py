"""Broken trace files, and what the error about each must say besides the file's name."""

import gzip
import lzma

_GOOD_MOONCAKE = b'{"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [0, 1]}\n'
_GOOD_SEGMENTS = b'{"id": "a", "prompt": [["sys", 10]], "output": 3}\n'
_GOOD_WEKA = (
    b'{"id": "s", "block_size": 64, "requests": [{"t": 0.0, "type": "n", "model": "m", "in": 130,'
    b' "out": 1, "hash_ids": [1, 2]}]}\n'
)
_AZURE = b"TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
_BURST = b"Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
_BAILIAN = (
    b'{"chat_id": %d, "parent_chat_id": -1, "timestamp": %s, "input_length": 20,'
    b' "output_length": 1, "type": "text", "turn": 1, "hash_ids": [1, 2]}\n'
)


def _long_integer(num_digits: int) -> bytes:
    return _GOOD_SEGMENTS.replace(b"3}", b"9" * num_digits + b"}")


def _azure_length(cell: bytes) -> bytes:
    return _AZURE + b"2023-11-16 18:15:46.6805900," + cell + b",3\n"


def _nested_weka(num_levels: int) -> bytes:
    """Subagents in subagents, one request in the innermost."""
    opened = b'{"t": 0, "type": "subagent", "requests": [' * num_levels
    call = b'{"t": 0, "type": "n", "in": 64, "out": 1, "hash_ids": [1]}'
    return b'{"id": "s", "requests": [' + opened + call + b"]}" * (num_levels + 1) + b"\n"


def _mooncake(**changes: bytes) -> bytes:
    fields = {
        "timestamp": b"0",
        "input_length": b"600",
        "output_length": b"5",
        "hash_ids": b"[0, 1]",
        **changes,
    }
    items = [b'"%s": %s' % (key.encode(), value) for key, value in fields.items() if value]
    return b"{" + b", ".join(items) + b"}\n"


def _marconi(ts: int, ids: bytes, count: int) -> bytes:
    return (
        b'{"session_id": 1, "turn_id": 0, "ts": %d, "num_input_tokens": %d, "num_output_tokens": 1,'
        b' "input_tokens": %s, "output_tokens": [7]}\n' % (ts, count, ids)
    )


# (name, format, bytes of the file, texts that the error must hold)
BAD_TRACES: list[tuple[str, str, bytes, list[str]]] = [
    ("empty file", "mooncake", b"", ["holds no requests"]),
    ("blank lines only", "segments", b"\n  \n\n", ["holds no requests"]),
    ("not JSON", "mooncake", _GOOD_MOONCAKE + b"hello\n", [":2", "not JSON", "hello"]),
    ("a list instead of an object", "tokens", b"[1, 2]\n", [":1", "JSON list", "allowed"]),
    ("last line cut off", "mooncake", _GOOD_MOONCAKE + _GOOD_MOONCAKE[:40], [":2", "complete"]),
    ("xz cut off", "weka", lzma.compress(_GOOD_WEKA * 50)[:-30], ["ends in the middle"]),
    ("gz cut off", "marconi", gzip.compress(_marconi(0, b"[1]", 1) * 50)[:-30], ["middle"]),
    ("gz damaged", "marconi", b"\x1f\x8b\x08\x00garbage-garbage-garbage", ["decompressed"]),
    ("not UTF-8", "segments", b'{"id": "\xff", "prompt": [["s", 1]]}\n', [":1", "UTF-8", "0xff"]),
    ("id count too high", "mooncake", _mooncake(hash_ids=b"[0, 1, 2]"), [":1", "3 ids", "2"]),
    ("id count by the floor rule", "mooncake", _mooncake(hash_ids=b"[0]"), ["1 ids", "512"]),
    ("negative length", "mooncake", _mooncake(input_length=b"-600"), ["input_length", "-600"]),
    ("missing field", "mooncake", _mooncake(output_length=b""), ["output_length is missing"]),
    ("text for a number", "mooncake", _mooncake(input_length=b'"600"'), ["input_length", "'600'"]),
    ("null for a number", "mooncake", _mooncake(timestamp=b"null"), ["timestamp", "None"]),
    ("fractional id", "mooncake", _mooncake(hash_ids=b"[0, 1.5]"), ["hash_ids", "whole numbers"]),
    ("negative id", "mooncake", _mooncake(hash_ids=b"[0, -1]"), ["hash_ids", "at least 0"]),
    ("ids are no list", "mooncake", _mooncake(hash_ids=b"3"), ["hash_ids is 3", "a list"]),
    (
        "time runs backwards",
        "mooncake",
        _mooncake(timestamp=b"3000") + _mooncake(timestamp=b"2000"),
        [":2", "2000", "rising order", "trace.sort"],
    ),
    (
        "seconds in a milliseconds file",
        "mooncake",
        b"".join(_mooncake(timestamp=b"%d" % (i // 4)) for i in range(200)),
        ["looks like seconds", "trace.time_unit"],
    ),
    ("fractions of a millisecond", "mooncake", _mooncake(timestamp=b"1.25"), ["1.25", "seconds"]),
    (
        "session starts with a delay",
        "mooncake-sessions",
        b'{"session_id": "s", "input_length": 5, "output_length": 1, "hash_ids": [1], "delay": 3}',
        [":1", "timestamp is missing"],
    ),
    (
        "session without id",
        "mooncake-sessions",
        _GOOD_MOONCAKE,
        [":1", "session_id is missing", "timestamp"],
    ),
    ("id count by the ceil rule", "weka", _GOOD_WEKA.replace(b"[1, 2]", b"[1, 2, 3]"), ["3 ids"]),
    ("unknown kind of request", "weka", _GOOD_WEKA.replace(b'"n"', b'"x"'), ["type is 'x'", "s"]),
    ("no requests in a session", "weka", b'{"id": "s", "requests": []}\n', ["holds no requests"]),
    ("unknown scope", "weka", _GOOD_WEKA.replace(b'"id"', b'"hash_id_scope": "us", "id"'), ["us"]),
    (
        "session time runs backwards",
        "weka",
        b'{"id": "s", "requests": [{"t": 5, "type": "n", "in": 1, "out": 1, "hash_ids": []},'
        b' {"t": 4, "type": "n", "in": 1, "out": 1, "hash_ids": []}]}\n',
        [":1", "t is 4", "before 5"],
    ),
    ("id count of neither rule", "bailian", (_BAILIAN % (1, b"0")).replace(b"20", b"90"), ["6"]),
    ("a chat twice", "bailian", _BAILIAN % (1, b"0") * 2, [":2", "chat_id 1 occurs twice"]),
    ("milliseconds in a seconds file", "bailian", _BAILIAN % (1, b"61114000"), ["milliseconds"]),
    ("missing column", "azure", b"TIMESTAMP,ContextTokens\r\n", ["GeneratedTokens", ":1"]),
    ("cut row", "azure", _AZURE + b"2023-11-16 18:15:46.6805900,37", [":2", "2 cells", "3"]),
    ("no date", "azure", _AZURE + b"yesterday,37,1\r\n", [":2", "yesterday", "a date"]),
    ("no prompt", "azure", _AZURE + b"2023-11-16 18:15:46.6,0,1\r\n", ["ContextTokens", "'0'"]),
    ("header only", "azure", _AZURE, ["holds no requests"]),
    ("sum is wrong", "burstgpt", _BURST + b"5,GPT-4,10,20,31,API log\n", [":2", "30", "31"]),
    ("infinite time", "burstgpt", _BURST + b"inf,GPT-4,10,20,30,API log\n", ["Timestamp", "inf"]),
    ("count of tokens is wrong", "marconi", _marconi(0, b"[1, 2]", 3), ["num_input_tokens", "2"]),
    ("no tokens", "marconi", _marconi(0, b"[]", 0), ["input_tokens", "at least one"]),
    (
        "a text among token ids",
        "tokens",
        b'{"id": 1, "tokens": [1, "b"], "output": 1}\n',
        ["tokens"],
    ),
    ("an id beyond 64 bits", "tokens", b'{"id": 1, "tokens": [%d]}\n' % 2**70, ["tokens"]),
    (
        "unknown field",
        "segments",
        _GOOD_SEGMENTS.replace(b'"id"', b'"sesion": 1, "id"'),
        ["sesion"],
    ),
    ("segment of no length", "segments", _GOOD_SEGMENTS.replace(b"10", b"0"), [":1", "['sys', 0]"]),
    ("prompt is a text", "segments", _GOOD_SEGMENTS.replace(b'[["sys", 10]]', b'"hi"'), ["prompt"]),
    (
        "empty prompt",
        "segments",
        _GOOD_SEGMENTS.replace(b'["sys", 10]', b""),
        ["at least one token"],
    ),
    ("no id", "segments", b'{"prompt": [["sys", 10]], "output": 3}\n', ["id is missing"]),
    ("no output", "segments", b'{"id": 1, "prompt": [["sys", 10]]}\n', ["output is missing"]),
    (
        "unknown content in the middle",
        "segments",
        b'{"id": 1, "prompt": [[null, 4], ["a", 3]], "output": 3}\n',
        [":1", "null", "last"],
    ),
    (
        "previous comes later",
        "segments",
        _GOOD_SEGMENTS.replace(b'"id": "a"', b'"id": "a", "previous": "b"'),
        [":1", "previous is 'b'", "above"],
    ),
    (
        "mark outside",
        "segments",
        _GOOD_SEGMENTS.replace(b'"id"', b'"marks": [5, 99], "id"'),
        ["marks", "99", "13"],
    ),
    (
        "clock on some lines only",
        "segments",
        _GOOD_SEGMENTS.replace(b'"id"', b'"arrival_s": 1.5, "id"') + _GOOD_SEGMENTS,
        [":2", "arrival_s is missing"],
    ),
    ("no messages", "messages", b'{"messages": []}\n', [":1", "messages is []"]),
    ("a message without role", "messages", b'{"messages": [{"content": "x"}]}\n', ["role"]),
    ("an integer of 5000 digits", "segments", _long_integer(5000), [":1", "not JSON"]),
    ("an integer of 18 digits", "segments", _long_integer(18), [":1", "output", "2^40"]),
    (
        "a length of 5000 digits",
        "azure",
        _azure_length(b"9" * 5000),
        [":2", "ContextTokens", "2^40"],
    ),
    ("a length of 20 digits", "azure", _azure_length(b"9" * 20), [":2", "ContextTokens", "2^40"]),
    ("a cell without end", "azure", _azure_length(b"x" * 200_000), [":2", "field limit"]),
    ("490 nested subagents", "weka", _nested_weka(490), [":1", "subagents", "50 levels"]),
    ("5000 nested subagents", "weka", _nested_weka(5000), [":1", "depth limit"]),
    (
        "a deep part of another reader",
        "weka",
        _GOOD_WEKA.replace(b'"id"', b'"extra": ' + b"[" * 400 + b"]" * 400 + b', "id"'),
        [":1", "nested too deeply"],
    ),
    (
        "a deep message",
        "messages",
        b'{"messages": [{"role": "user", "content": ['
        + b'{"a":' * 400
        + b"1"
        + b"}" * 400
        + b"]}]}",
        [":1", "nested too deeply"],
    ),
    (
        "a deep prompt",
        "segments",
        b'{"id": "a", "prompt": ' + b"[" * 900 + b"]" * 900 + b', "output": 1}',
        [":1", "prompt holds", "[name, length]"],
    ),
    ("content is a number", "messages", b'{"messages": [{"role": "user", "content": 3}]}\n', ["3"]),
]
