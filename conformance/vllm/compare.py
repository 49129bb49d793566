"""The first decision in which two answers to one job differ."""

from typing import Any

Row = dict[str, Any]


def first_difference(theirs: Row, ours: Row) -> str | None:
    """A sentence about the first difference, None when all decisions agree.

    Requests are compared field by field in the order they finished, then step digests (which see
    the order of the free queue and the hash of every block).
    """
    keys = ["block_size", "bytes_per_block", "num_blocks"]
    if theirs["info"]["mode"] != "none":
        keys.append("hash_block_size")
    for key in keys:
        if theirs["info"][key] != ours["info"][key]:
            return f"{key}: engine {theirs['info'][key]}, hybridsim {ours['info'][key]}"
    for number, (their_row, our_row) in enumerate(
        zip(theirs["requests"], ours["requests"], strict=False)
    ):
        for key in their_row:
            if their_row[key] != our_row.get(key):
                name = their_row.get("id", f"row {number}")
                return f"{name} {key}: engine {their_row[key]}, hybridsim {our_row.get(key)}"
    if len(theirs["requests"]) != len(ours["requests"]):
        return f"rows: engine {len(theirs['requests'])}, hybridsim {len(ours['requests'])}"
    return first_step_difference(theirs["steps"], ours["steps"])


def first_step_difference(theirs: list[int], ours: list[int]) -> str | None:
    """The first step whose digest differs; none when ours were not recorded."""
    if not ours:
        return None
    for step, (a, b) in enumerate(zip(theirs, ours, strict=False), start=1):
        if a != b:
            return f"pool state after step {step} differs"
    if len(theirs) != len(ours):
        return f"steps: engine {len(theirs)}, hybridsim {len(ours)}"
    return None
