"""Why chunks of about 64 tokens: one prefill by chunk size, in two forms of the same rule.

A chunk a program, which ends at 128 tokens; and chunks of up to 256 worked in blocks of 64, where
sizes differ by what a longer chunk costs and not by how it is cut up.
"""

from collections.abc import Callable
from functools import partial

import torch

from hybridsim.kernels.bench.recurrence_cases import draw
from hybridsim.kernels.bench.timing import time_graph
from hybridsim.kernels.plan import PackedPlan, SequenceTask, make_plan
from hybridsim.kernels.recurrence import GATED_DELTA, prefill, prefill_blocked
from hybridsim.kernels.recurrence.blocked import CHUNK_SIZES

Row = dict[str, object]
# (q, k, v, log_decay, strength, states, plan, scale) -> outputs, as both forms take them
Form = Callable[..., torch.Tensor]
HEADS, SIZE = 16, 128
SCALE = SIZE**-0.5
REFERENCE = "one program a chunk"
FORMS: dict[str, tuple[Form, tuple[int, ...]]] = {
    REFERENCE: (partial(prefill, GATED_DELTA), (16, 32, 64, 128)),
    "blocks of 64": (prefill_blocked, CHUNK_SIZES),
}
TOLERANCE = 2e-2  # relative; inputs are bfloat16


def check_agreement(name: str, actual: torch.Tensor, expected: torch.Tensor) -> None:
    """RuntimeError unless the tensors differ by less than TOLERANCE of the norm of `expected`."""
    gap = (actual.double() - expected.double()).norm() / expected.double().norm()
    # Turned round, NaN would pass.
    if not gap < TOLERANCE:
        raise RuntimeError(f"{name} differs by {gap:.2e}; allowed: less than {TOLERANCE:.0e}")


def chunk_size(num_tokens: int = 8192) -> list[Row]:
    """Chunked prefill of one sequence, by form and chunk size; outputs and states agree first."""
    x = draw(GATED_DELTA, num_tokens, HEADS, SIZE, SIZE, 0)
    states = torch.zeros(2, HEADS, SIZE, SIZE, device="cuda")

    def plan(size: int, slot: int) -> PackedPlan:
        return make_plan([SequenceTask(num_tokens, -1, slot)], size, "cuda")

    expected = FORMS[REFERENCE][0](*x, states, plan(64, 0), SCALE)
    rows: list[Row] = []
    for name, (form, sizes) in FORMS.items():
        for size in sizes:
            call = partial(form, *x, states, plan(size, 1), SCALE)
            check_agreement(f"output of {name}, {size} tokens,", call(), expected)
            check_agreement(f"state of {name}, {size} tokens,", states[1], states[0])
            timing = time_graph([call])
            rows.append({
                "form": name, "chunk_size": size,
                "seconds": timing.median_s, "spread": timing.spread,
            })  # fmt: skip
    return rows
