"""The parts that a profile is measured in: on which axes, and what of a step each of them is."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from hybridsim.cost import efficiency as classes
from hybridsim.cost.base import PrefillChunk

At = tuple[int, ...]


class StepShape(NamedTuple):
    """The arguments of a cost model's step_s."""

    chunks: tuple[PrefillChunk, ...] = ()
    num_decodes: int = 0
    decode_context_tokens: int = 0
    copied_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a profile: its axes, a step that has it at a point, the roofline's classes.

    lookup: what the measured model calls it, where that is not the part's own name.
    """

    axes: tuple[str, ...]
    step_at: Callable[[At, int], StepShape]
    classes: tuple[str, ...]
    lookup: str = ""


def prefill_step(*chunks: tuple[int, int]) -> StepShape:
    """Chunks as (new tokens, prefix tokens)."""
    return StepShape(tuple(PrefillChunk(new, prefix) for new, prefix in chunks))


# The point of a part's grid and a state's bytes -> a step of which that part is known.
PARTS: dict[str, Part] = {
    "dense": Part(
        ("tokens",), lambda at, _: prefill_step((at[0], 0)), (classes.MATMUL, classes.POINTWISE)
    ),
    "experts": Part(("tokens",), lambda at, _: prefill_step((at[0], 0)), (classes.EXPERTS,)),
    "head": Part(("rows",), lambda at, _: StepShape((), at[0], at[0]), (classes.HEAD,)),
    "recurrent_prefill": Part(
        ("tokens", "sequences"),
        lambda at, _: prefill_step(*[(at[0], 0)] * at[1]),
        (classes.SCAN_PREFILL,),
    ),
    "recurrent_decode": Part(
        ("requests",), lambda at, _: StepShape((), at[0], at[0]), (classes.SCAN_DECODE,)
    ),
    "full_prefill": Part(
        ("tokens", "prefix tokens"),
        lambda at, _: prefill_step((at[0], at[1])),
        (classes.ATTENTION_PREFILL, classes.ATTENTION_PREFIX),
    ),
    "full_prefill_of_4": Part(
        ("tokens", "prefix tokens"),
        lambda at, _: prefill_step(*[(at[0], at[1])] * 4),
        (classes.ATTENTION_PREFILL, classes.ATTENTION_PREFIX),
        "full_prefill",
    ),
    "full_decode": Part(
        ("requests", "context tokens"),
        lambda at, _: StepShape((), at[0], at[0] * at[1]),
        (classes.ATTENTION_DECODE,),
    ),
    "copy": Part(
        ("slots",),
        lambda at, state_bytes: StepShape(copied_bytes=at[0] * state_bytes),
        (classes.COPY,),
    ),
}
