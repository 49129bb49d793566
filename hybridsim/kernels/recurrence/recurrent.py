"""The recurrent form: one token after another with the state in registers.

One kernel serves decode (one token a request, state updated in place), speculative verify (a state
saved after every draft), replay of recorded inputs (state only, no output) and short prefills.
"""
# mypy: disallow-untyped-defs=False

import torch
import triton
import triton.language as tl

from hybridsim.kernels.launch import output_of, require, require_rows
from hybridsim.kernels.recurrence.rules import Rule


@triton.jit
def _add_both(a, b, c, d):
    return a + c, b + d


@triton.jit
def _recurrent_kernel(
    q_ptr, k_ptr, v_ptr, decay_ptr, strength_ptr, out_ptr, state_ptr,
    starts_ptr, lengths_ptr, read_slots_ptr, save_slots_ptr,
    q_stride, k_stride, v_stride, slot_stride, scale,
    H: tl.constexpr, H_PER_KEY: tl.constexpr, K: tl.constexpr, V: tl.constexpr,
    BLOCK_V: tl.constexpr, PER_CHANNEL: tl.constexpr, IS_DELTA: tl.constexpr,
    ONE_TOKEN: tl.constexpr, ALL_READ: tl.constexpr, LANE_ITEMS: tl.constexpr,
):  # fmt: skip
    """Program (head, value block, request). `save_slots` has one slot a token, -1 to save none.

    Both sums of a step are over the old state: q (a S + k^T w) = (a q) S + (q k) w.
    """
    head, value_block, request = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    start = tl.load(starts_ptr + request).to(tl.int64)
    length = 1 if ONE_TOKEN else tl.load(lengths_ptr + request)
    read_slot = tl.load(read_slots_ptr + request).to(tl.int64)
    channels = tl.arange(0, K)
    columns = value_block * BLOCK_V + tl.arange(0, BLOCK_V)
    # A constant mask, where there is no tail, is no mask.
    in_value = columns < V if V % BLOCK_V != 0 else tl.full([BLOCK_V], True, dtype=tl.int1)
    # How many neighbours a thread loads at once: few, so that a warp spans whole rows and sums over
    # rows stay inside threads. 64-bit offsets, since only those become part of load instructions.
    items = tl.max_contiguous(columns.to(tl.int64), LANE_ITEMS)
    tile = channels.to(tl.int64)[:, None] * V + items[None, :]
    head_state_ptr = state_ptr + head * K * V
    # A mask and no branch, at whose end the load would be waited for.
    is_read = in_value[None, :] if ALL_READ else in_value[None, :] & (read_slot >= 0)
    read_tile = head_state_ptr + read_slot * slot_stride + tile
    # A state is used once a step: keep it from pushing other data out of the cache.
    state = tl.load(read_tile, mask=is_read, other=0.0, eviction_policy="evict_first")
    state = state.to(tl.float32)
    key_offset = head // H_PER_KEY * K + channels
    for step in range(length):
        token = start + step
        # All loads of a step before the first use of the state.
        save_slot = tl.load(save_slots_ptr + token).to(tl.int64)
        k = tl.load(k_ptr + token * k_stride + key_offset).to(tl.float32)
        v = tl.load(v_ptr + token * v_stride + head * V + columns, mask=in_value, other=0.0)
        written = v.to(tl.float32)
        decay = 1.0
        if decay_ptr is not None:
            if PER_CHANNEL:
                log_decay = tl.load(decay_ptr + (token * H + head) * K + channels)
            else:
                log_decay = tl.load(decay_ptr + token * H + head)
            decay = tl.exp(log_decay.to(tl.float32))
        strength = 1.0
        if strength_ptr is not None:
            strength = tl.load(strength_ptr + token * H + head).to(tl.float32)
        q = k
        if out_ptr is not None:
            q = tl.load(q_ptr + token * q_stride + key_offset).to(tl.float32)
        known = (k * decay)[:, None] * state
        asked = (q * decay)[:, None] * state
        if IS_DELTA and out_ptr is not None:
            known, asked = tl.reduce((known, asked), 0, _add_both)
            written -= known
        elif IS_DELTA:
            written -= tl.sum(known, axis=0)
        elif out_ptr is not None:
            asked = tl.sum(asked, axis=0)
        written *= strength
        if PER_CHANNEL:
            state *= decay[:, None]  # type: ignore[index]
        else:
            state *= decay
        state += k[:, None] * written[None, :]
        if out_ptr is not None:
            out = (asked + tl.sum(q * k, axis=0) * written) * scale
            out_row = out_ptr + (token * H + head) * V + columns
            tl.store(out_row, out.to(out_ptr.dtype.element_ty), mask=in_value)
        if save_slot >= 0:
            save_tile = head_state_ptr + save_slot * slot_stride + tile
            tl.store(
                save_tile, state.to(state_ptr.dtype.element_ty), mask=in_value[None, :],
                eviction_policy="evict_first",
            )  # fmt: skip


def run_tokens(
    rule: Rule,
    q: torch.Tensor | None,
    k: torch.Tensor,
    v: torch.Tensor,
    log_decay: torch.Tensor | None,
    strength: torch.Tensor | None,
    states: torch.Tensor,
    starts: torch.Tensor,
    lengths: torch.Tensor | None,
    read_slots: torch.Tensor,
    save_slots: torch.Tensor,
    scale: float = 1.0,
    out: torch.Tensor | None = None,
    all_read: bool = False,
) -> torch.Tensor | None:
    """Run `lengths[n]` tokens from `starts[n]` on for request n, from the state in read_slots[n].

    q, k `[T, Hk, K]`, v `[T, H, V]`: the last two axes contiguous, the token stride free; log_decay
    `[T, H]` or `[T, H, K]` and strength `[T, H]` contiguous, or None; states `[slots, H, K, V]`,
    float32 or bfloat16, changed in place; starts, lengths, read_slots int32 `[N]` (lengths None:
    one token each); save_slots int32 `[T]`: slot that gets the state after that token, -1 for none.
    A read slot of -1 is a zero state; all_read: there is none such, which saves a test. Slots that
    are saved to must not be read by other requests of the same call. q None: states only. Returns
    out `[T, H, V]`, or None when q is None; rows of tokens that no request covers keep what they
    had.
    """
    check_inputs(rule, q, k, v, log_decay, strength, states)
    num_heads, value_size = v.shape[1:]
    if q is not None or out is not None:
        out = output_of(out, v.shape, v)
    if starts.shape[0] == 0:
        return out
    block_v, num_warps = tile_of(k.shape[2], value_size, starts.shape[0] * num_heads)
    grid = (num_heads, triton.cdiv(value_size, block_v), starts.shape[0])
    # A fifth program a multiprocessor; decay per channel would spill.
    options = {} if rule.decay == "channel" else {"maxnreg": 104}
    _recurrent_kernel[grid](
        q, k, v, log_decay, strength, out if q is not None else None, states,
        starts, lengths, read_slots, save_slots,
        0 if q is None else q.stride(0), k.stride(0), v.stride(0), states.stride(0), scale,
        H=num_heads, H_PER_KEY=num_heads // k.shape[1], K=k.shape[2], V=value_size,
        BLOCK_V=block_v, PER_CHANNEL=rule.decay == "channel", IS_DELTA=rule.is_delta,
        ONE_TOKEN=lengths is None, ALL_READ=all_read, LANE_ITEMS=2, num_warps=num_warps,
        **options,
    )  # fmt: skip
    return out if q is not None else None


def tile_of(key_size: int, value_size: int, num_tiles: int) -> tuple[int, int]:
    """Columns of the state a program holds, and its warps, for `num_tiles` = requests x heads.

    Measured on an H200: 8192 numbers a program, 64 a thread; fewer while there are too few programs
    to fill the card.
    """
    wide = min(triton.next_power_of_2(value_size), max(16, 8192 // key_size))
    block_v = wide if num_tiles >= 512 else max(16, wide // 4)
    return block_v, 4 if key_size * block_v >= 8192 else 2


def check_inputs(
    rule: Rule,
    q: torch.Tensor | None,
    k: torch.Tensor,
    v: torch.Tensor,
    log_decay: torch.Tensor | None,
    strength: torch.Tensor | None,
    states: torch.Tensor,
) -> None:
    """Raise ValueError where the inputs do not fit the rule, each other or the kernels."""
    require_rows(q=q, k=k, v=v)
    require(q is None or q.shape == k.shape, "q and k differ in shape")
    require(k.shape[0] == v.shape[0], f"k has {k.shape[0]} tokens, v {v.shape[0]}")
    for name, x in (("log_decay", log_decay), ("strength", strength)):
        require(x is None or x.is_contiguous(), f"{name} must be contiguous")
    shape = (*v.shape[:2], k.shape[2]) if rule.decay == "channel" else v.shape[:2]
    require((log_decay is None) == (rule.decay == "none"), f"{rule.name}: decay {rule.decay}")
    require(log_decay is None or log_decay.shape == shape, f"log_decay must be {tuple(shape)}")
    require((strength is not None) == rule.has_strength, f"{rule.name}: strength given or missing")
    require(strength is None or strength.shape == v.shape[:2], "strength must be [T, H]")
    require(v.shape[1] % k.shape[1] == 0, f"{v.shape[1]} value heads on {k.shape[1]} key heads")
    state_shape = (v.shape[1], k.shape[2], v.shape[2])
    require(states.shape[1:] == state_shape, f"states must be [slots, {state_shape}]")
    require(states[0].is_contiguous(), "a state must be contiguous within its slot")
