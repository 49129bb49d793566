"""Measured points of parts and whole steps, beside what the two cost models say of them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from hybridsim.cost import efficiency as classes
from hybridsim.cost.fitting import Step, chunks_of
from hybridsim.cost.measured import MeasuredCost
from hybridsim.cost.parts import PARTS, At, StepShape, prefill_step
from hybridsim.cost.roofline import RooflineCost
from hybridsim.cost.show.subject import Subject


class PartPoint(NamedTuple):
    """Seconds of one part at one point of its grid; low_s, high_s: 20 and 80 % quantiles.

    interpolated_s: the measured model's, the same at the points of its own grid. roofline_s: None
    without a roofline.
    """

    part: str
    at: At
    measured_s: float
    low_s: float
    high_s: float
    interpolated_s: float
    roofline_s: float | None


def predicted_s(subject: Subject, part: str, at: At) -> tuple[float, float | None]:
    """What the measured model and the roofline say of a part at any point."""
    measured, about = subject.measured, PARTS[part]
    assert measured is not None
    step = about.step_at(at, int(measured.profile.state_bytes))
    looked_up = measured.parts_s(*step)[about.lookup or part]
    if subject.roofline is None:
        return looked_up, None
    floors = subject.roofline.parts_s(*step)
    return looked_up, sum(floors.get(name, 0.0) for name in about.classes)


def part_points(subject: Subject) -> Iterator[PartPoint]:
    """All measured points of the parts that are known here, in the profile's order."""
    assert subject.data is not None
    for part, table in subject.data["operators"].items():
        for point in table["points"] if part in PARTS else ():
            at = tuple(point["at"])
            times = (point["median_s"], point["low_s"], point["high_s"])
            yield PartPoint(part, at, *times, *predicted_s(subject, part, at))


class StepPoint(NamedTuple):
    """A whole step: measured, and both predictions. kind: decode, prefill or mixed."""

    kind: str
    num_chunks: int
    num_prefill_tokens: int
    num_prefix_tokens: int
    num_decodes: int
    decode_context_tokens: int
    measured_s: float
    measured_model_s: float | None
    roofline_s: float | None


def step_points(subject: Subject, steps: Sequence[Step]) -> list[StepPoint]:
    """Predictions of steps as a calibration writes them: of one rank, without all-reduces."""
    alone = None if subject.measured is None else MeasuredCost(subject.measured.profile)
    return [_step_point(alone, subject.roofline, step) for step in steps]


def _step_point(
    measured: MeasuredCost | None, roofline: RooflineCost | None, step: Mapping[str, Any]
) -> StepPoint:
    chunks = chunks_of(step)
    shape = StepShape(tuple(chunks), step["num_decodes"], step["decode_context_tokens"])
    floors = {} if roofline is None else roofline.parts_s(*shape)
    floors.pop("allreduce", None)
    kind = "mixed" if chunks and shape.num_decodes else "prefill" if chunks else "decode"
    return StepPoint(
        kind,
        len(chunks),
        sum(chunk.num_new_tokens for chunk in chunks),
        sum(chunk.num_prefix_tokens for chunk in chunks),
        shape.num_decodes,
        shape.decode_context_tokens,
        step["median_s"],
        None if measured is None else measured.step_s(*shape),
        sum(floors.values()) if floors else None,
    )


def in_order(steps: Mapping[str, Mapping[str, float]]) -> list[str]:
    """The parts that some of the steps have, as they follow one another in a roofline."""
    present = {part for parts in steps.values() for part in parts}
    known = [part for part in (*classes.CLASSES, "allreduce", "overhead") if part in present]
    return known + sorted(present - set(known))


def typical_steps(state_bytes: int) -> dict[str, StepShape]:
    """A few steps that everybody has: decoding at 4096 tokens, prefill, the copy of a state."""
    steps = {f"decode of {n} at 4k": StepShape((), n, n * 4096) for n in (1, 32, 256)}
    steps |= {f"prefill of {n // 1024}k": prefill_step((n, 0)) for n in (1024, 8192)}
    if state_bytes:
        steps["copy of one state"] = StepShape(copied_bytes=state_bytes)
    return steps
