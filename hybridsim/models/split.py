"""How a count of heads or channels is divided among tensor-parallel ranks."""

from hybridsim.errors import UserError


def split_heads(count: int, tp: int, what: str) -> int:
    """An equal share; UserError when `tp` does not divide `count`."""
    if count % tp:
        raise UserError("tp", f"{tp} does not divide the model's {count} {what}")
    return count // tp


def split_shared(count: int, tp: int, what: str) -> int:
    """An equal share, or one each (a copy) when there are fewer than ranks."""
    if tp > count:
        if tp % count:
            raise UserError("tp", f"{tp} is no multiple of the model's {count} {what}")
        return 1
    return split_heads(count, tp, what)
