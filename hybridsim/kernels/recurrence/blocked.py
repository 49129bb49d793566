"""The gated delta rule in chunks of 64, 128 or 256 tokens, worked in blocks of 64.

For one question: how the time of a prefill grows with the chunk (`kernels/chunk_study.py`). One
program cannot hold 256 tokens, so a chunk is cut into blocks, and all sizes are one form:

1. Every block is solved by itself, then halves are joined, 64 to 128 to 256, a launch each: the w
   and u of the whole chunk. No block waits for another but at a launch's end.
2. The state walks along the tokens, 64 or, in longer chunks, 128 a step; they read it as it was at
   their chunk's start.
3. Outputs, all blocks side by side: q over the state at the chunk's start, and over what each block
   of the chunk up to its own has written.

With n blocks a chunk, a token takes part in (n - 1) / 2 joins of blocks and (n + 1) / 2 products
of scores on average: both grow with the chunk. What shrinks is the number of serial steps of part
two and of states kept for part three, one a chunk; 256 tokens a step would leave no shared memory
to load ahead. The products of part two are the same for all n. Across blocks, exponentials are of
sums of log decays, never of a difference of such sums.
"""

import torch

from hybridsim.kernels.launch import output_of, require
from hybridsim.kernels.plan import PackedPlan
from hybridsim.kernels.recurrence.blocked_local import BLOCK, blocked_local
from hybridsim.kernels.recurrence.blocked_scan import blocked_outputs, blocked_scan
from hybridsim.kernels.recurrence.recurrent import check_inputs
from hybridsim.kernels.recurrence.rules import GATED_DELTA

CHUNK_SIZES = (BLOCK, 2 * BLOCK, 4 * BLOCK)


def prefill_blocked(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    log_decay: torch.Tensor,
    strength: torch.Tensor,
    states: torch.Tensor,
    plan: PackedPlan,
    scale: float = 1.0,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Outputs `[T, H, V]` of packed sequences; states named by `plan` are read and saved.

    As `chunked.prefill` of GATED_DELTA: q, k `[T, Hk, K]`, v `[T, H, V]` (bfloat16, float16 or
    float32; heads and channels contiguous, token stride free; K a power of two, at least 32);
    log_decay, strength `[T, H]` contiguous; states `[slots, H, K, V]` float32 or bfloat16, changed
    in place. Slots written by one sequence must not be read by another. ValueError where the inputs
    do not fit each other or the plan's chunk size is none of 64, 128 and 256.
    """
    check_inputs(GATED_DELTA, q, k, v, log_decay, strength, states)
    size = plan.chunk_size
    require(size in CHUNK_SIZES, f"chunk size {size} in blocks; allowed: 64, 128, 256")
    require(k.shape[2] >= 32, f"keys of {k.shape[2]} channels in blocks; allowed: at least 32")
    require(plan.num_tokens == v.shape[0], f"plan has {plan.num_tokens} tokens, v {v.shape[0]}")
    out = output_of(out, v.shape, v)
    if plan.num_sequences == 0:
        return out
    parts = blocked_local(k, v, log_decay, strength, plan)
    history = blocked_scan(k, parts, states, plan)
    blocked_outputs(q, k, parts, history, plan, scale, out)
    return out
