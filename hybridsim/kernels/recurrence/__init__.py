"""Linear-attention recurrences: gated delta rule, delta rule, KDA, gated linear attention, SSD.

`naive.recurrence` is the truth, `prefill` the chunked form, `prefill_blocked` the same for longer
chunks, `decode`, `verify`, `replay` and `run_tokens` the recurrent form.
"""

from hybridsim.kernels.recurrence.blocked import prefill_blocked
from hybridsim.kernels.recurrence.chunked import prefill
from hybridsim.kernels.recurrence.decode import decode, replay, verify
from hybridsim.kernels.recurrence.recurrent import run_tokens
from hybridsim.kernels.recurrence.rules import (
    DELTA,
    GATED_DELTA,
    KDA,
    LINEAR,
    RULES,
    SSD,
    Rule,
)

__all__ = [
    "DELTA", "GATED_DELTA", "KDA", "LINEAR", "RULES", "SSD", "Rule",
    "decode", "prefill", "prefill_blocked", "replay", "run_tokens", "verify",
]  # fmt: skip
