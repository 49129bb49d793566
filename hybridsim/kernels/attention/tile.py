"""One step of attention over a tile of keys and values, with the running softmax."""
# mypy: disallow-untyped-defs=False

import triton
import triton.language as tl


@triton.jit
def attend_tile(
    acc, peak, norm, q, q_rotary, k, k_rotary, v, is_seen, log2_scale,
    R: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Fold a tile into acc `[M, D]`, peak `[M]` (log2 of the largest weight) and norm `[M]`.

    q `[M, D]`, k `[N, D]`, v `[N, D]`; q_rotary, k_rotary: further R channels, read if R > 0.
    is_seen `[M, N]` (or `[1, N]`): pairs that count, used when MASKED; in the first tile each row
    must see a key, else its peak stays -inf and inf - inf arises.
    """
    scores = tl.dot(q, tl.trans(k), input_precision="ieee")
    if R > 0:
        scores = tl.dot(q_rotary, tl.trans(k_rotary), scores, input_precision="ieee")
    if MASKED:
        scores = tl.where(is_seen, scores, float("-inf"))
    new_peak = tl.maximum(peak, tl.max(scores, axis=1) * log2_scale)
    weights = tl.exp2(scores * log2_scale - new_peak[:, None])
    shrink = tl.exp2(peak - new_peak)
    norm = norm * shrink + tl.sum(weights, axis=1)
    acc = tl.dot(weights.to(v.dtype), v, acc * shrink[:, None], input_precision="ieee")
    return acc, new_peak, norm
