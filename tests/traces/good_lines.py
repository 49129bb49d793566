"""One good line of every JSONL format."""

from typing import Any

_CALL = {"t": 2.0, "type": "n", "model": "m", "in": 130, "out": 4, "hash_ids": [1, 2]}
_SUB = {"t": 3.0, "type": "subagent", "duration_ms": 500, "requests": [{**_CALL, "t": 0.5}]}
_SAID = [{"role": "user", "content": "hello there"}, {"role": "assistant", "content": "yes"}]
GOOD: dict[str, dict[str, Any]] = {
    "segments": {
        "id": "a", "arrival_s": 1.5, "session": "x", "prompt": [["sys", 10], ["u", 5]],
        "output": [["o", 3]], "delay_s": 1.0, "marks": [10], "priority": 1, "grid_tokens": 4,
    },
    "tokens": {"id": "a", "tokens": [1, 2, 3], "output": [4], "session": "x"},
    "mooncake": {"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [0, 1]},
    "mooncake-sessions": {
        "session_id": "s", "timestamp": 0, "input_length": 600, "output_length": 5,
        "hash_ids": [0, 1],
    },
    "weka": {
        "id": "s", "block_size": 64, "hash_id_scope": "local", "tool_tokens": 64,
        "system_tokens": 10, "requests": [_CALL, _SUB, {**_CALL, "t": 9.0, "think_time": 1.0}],
    },
    "bailian": {
        "chat_id": 1, "parent_chat_id": -1, "timestamp": 0.5, "input_length": 20,
        "output_length": 1, "type": "text", "turn": 1, "hash_ids": [1, 2],
    },
    "marconi": {
        "session_id": 1, "turn_id": 0, "ts": 0.5, "num_input_tokens": 2, "num_output_tokens": 1,
        "input_tokens": [1, 2], "output_tokens": [3],
    },
    "messages": {"messages": _SAID, "id": "a", "session_id": "s", "timestamp": 1.0, "tools": [{}]},
}  # fmt: skip
