"""The update rules of linear-attention layers, as points in one family.

With key k_t, value v_t, query q_t, decay a_t and write strength b_t, and state S of shape [K, V]:

    S_t = a_t S_{t-1} + k_t^T b_t (v_t - e k_t a_t S_{t-1})        o_t = scale * q_t S_t

e = 1 is the delta rule (write only what the state does not yet say about k_t), e = 0 plain linear
attention. a_t is 1, one number a head, or one number a key channel.
"""

from dataclasses import dataclass
from typing import Literal

Decay = Literal["none", "head", "channel"]


@dataclass(frozen=True, slots=True)
class Rule:
    """`decay`: granularity of a_t. `is_delta`: e above. `has_strength`: False fixes b_t to 1."""

    name: str
    decay: Decay
    is_delta: bool
    has_strength: bool = True


GATED_DELTA = Rule("gated_delta", "head", True)  # Gated DeltaNet
DELTA = Rule("delta", "none", True)  # DeltaNet
KDA = Rule("kda", "channel", True)  # Kimi Delta Attention
LINEAR = Rule("linear", "head", False, has_strength=False)  # gated linear attention, lightning
SSD = Rule("ssd", "head", False)  # Mamba2: q, k, v, b are C, B, x, dt

RULES = {rule.name: rule for rule in (GATED_DELTA, DELTA, KDA, LINEAR, SSD)}
