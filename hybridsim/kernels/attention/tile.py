"""One step of attention over a tile of keys and values, with the running softmax."""
# mypy: disallow-untyped-defs=False

import triton
import triton.language as tl


@triton.jit
def attend_tile(
    acc, peak, norm, q, q_rotary, k_rows, v_rows, is_seen, in_tile, log2_scale,
    D: tl.constexpr, R: tl.constexpr, SHARED: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Fold a tile into acc `[M, D]`, peak `[M]` (log2 of the largest weight) and norm `[M]`.

    k_rows, v_rows: pointers to the first channel of every row of the tile, `[N]`. in_tile `[N]`:
    rows that may be loaded. is_seen `[M, N]` (or `[1, N]`): pairs that count, used when MASKED.
    SHARED: values are the first D channels of the keys (MLA), R further channels are rotary.
    """
    channels = tl.arange(0, D)
    k = tl.load(k_rows[:, None] + channels[None, :], mask=in_tile[:, None], other=0.0)
    scores = tl.dot(q, tl.trans(k), input_precision="ieee")
    if R > 0:
        rotary = D + tl.arange(0, R)
        k_rotary = tl.load(k_rows[:, None] + rotary[None, :], mask=in_tile[:, None], other=0.0)
        scores = tl.dot(q_rotary, tl.trans(k_rotary), scores, input_precision="ieee")
    if MASKED:
        scores = tl.where(is_seen, scores, float("-inf"))
    new_peak = tl.maximum(peak, tl.max(scores, axis=1) * log2_scale)
    # A row that has seen nothing yet has peak -inf; the subtraction below must not see inf - inf.
    base = tl.where(new_peak == float("-inf"), 0.0, new_peak)
    weights = tl.exp2(scores * log2_scale - base[:, None])
    shrink = tl.exp2(peak - base)
    norm = norm * shrink + tl.sum(weights, axis=1)
    if SHARED:
        v = k
    else:
        v = tl.load(v_rows[:, None] + channels[None, :], mask=in_tile[:, None], other=0.0)
    acc = tl.dot(weights.to(v.dtype), v, acc * shrink[:, None], input_precision="ieee")
    return acc, new_peak, norm
