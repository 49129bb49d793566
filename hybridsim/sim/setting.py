"""What a run tells its policies beforehand: the trace, sizes, the price of prefill, randomness."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from hybridsim.models.spec import ModelSpec
from hybridsim.policies.base import Setting
from hybridsim.request import Request


def setting_for(
    requests: Sequence[Request], model: ModelSpec, seed: int, *, shared: bool = False
) -> Setting:
    """The setting of one run. `shared`: KV and states live in one pool of bytes."""
    return Setting(
        requests=requests,
        kv_bytes_per_token=model.kv_bytes_per_token,
        state_bytes=model.state_bytes,
        prefill_flops=PrefillFlops(model),
        rng=np.random.default_rng(seed),
        shared=shared,
    )


class PrefillFlops:
    """`model.prefill_flops(n, p).total`, equal layers priced once: policies ask very often."""

    def __init__(self, model: ModelSpec) -> None:
        self._attention = tuple(Counter(model.attention_layers).items())
        self._recurrent = tuple(Counter(model.recurrent_layers).items())
        self._per_token = 2 * model.active_matmul_params
        self._head = 2 * model.head_params

    def __call__(self, num_tokens: int, num_prefix_tokens: int) -> float:
        """FLOPs to prefill `num_tokens` after `num_prefix_tokens` earlier ones."""
        flops = self._head + num_tokens * self._per_token
        for attention, count in self._attention:
            flops += count * attention.prefill_flops(num_tokens, num_prefix_tokens)
        for recurrent, count in self._recurrent:
            flops += count * recurrent.prefill_flops(num_tokens)
        return flops
