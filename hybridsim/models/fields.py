"""Reads a Hugging Face config by field names and fails closed.

Every field that is read is remembered. What is left must be harmless: a field whose name speaks of
geometry and that nobody read is an error, since a model with it may be shaped otherwise than ours.
"""

import re
from collections.abc import Mapping
from typing import Any

from hybridsim.errors import UserError, shorten
from hybridsim.models.dtypes import dtype_named

_GEOMETRY = re.compile(
    r"(heads|head_dim|hidden_size|intermediate|_rank|layers?$|layer_|layer_types|expert|window"
    r"|kernel|_conv|d_conv|d_state|expand|groups$|pattern|_state|state_size|interval|latent|shared"
    r"|lora|sparse|quant)"
)
# Geometry-like names that change no shape that is modelled: vision and drafting parts (mtp,
# nextn), router details, how kernels or training run.
_HARMLESS = re.compile(
    r"(^mtp_|^num_nextn|_token|token_id|^router|^max_window_layers$|^output_hidden_states$"
    r"|^norm_topk|^num_expert_group$|^use_.*kernels?$|^layernorm_|^initializer|^moe_renormalize$"
    r"|^moe_router|^shared_moe_mode$|^aux_loss|^tf_legacy|^num_logits|^topk|^n_group$|_epsilon$"
    r"|^pruned_heads$|^residual_in|^rescale|_loss|^expand$|^mamba_expand$|^rotary|^moe_layer_freq$"
    r"|^layer_norm|_fp32$|^use_grouped_topk$|^attention_dropout$|^is_|^cross_attention"
    r"|^encoder_|^chunk_size|^tie_encoder|^add_cross|^_)"
)
_OFF: tuple[object, ...] = (None, False, 0, [], {}, "")
# Wider or deeper than any model there will be; beyond it counts of bytes would be nonsense.
_MOST, _MOST_LAYERS = 2**31, 10_000


def _shown(value: object) -> str:
    return shorten(repr(value))


class Fields:
    """The fields of one config object; `place` is the file, named in every error."""

    def __init__(self, values: Mapping[str, Any], place: str) -> None:
        self._values = values
        self._read: set[str] = set()
        self.place = place

    def error(self, key: str, message: str) -> UserError:
        return UserError(f"{self.place}: {key}", message)

    def get(self, *keys: str, default: Any = None) -> Any:
        """The value of the first key that is present and not null; all of them count as read."""
        self._read.update(keys)
        found = (self._values[key] for key in keys if self._values.get(key) is not None)
        return next(found, default)

    def count(
        self, *keys: str, default: int | None = None, least: int = 1, most: int = _MOST
    ) -> int:
        """A whole number from `least` to `most`. Without a default the field is required."""
        value = self.get(*keys, default=default)
        if value is None:
            raise self.error(keys[0], f"missing; allowed: a whole number from {least}")
        if type(value) is not int or not least <= value <= most:
            allowed = f"a whole number from {least} to {most}"
            raise self.error(keys[0], f"is {_shown(value)}; allowed: {allowed}")
        return value

    def num_layers(self) -> int:
        """`num_hidden_layers`."""
        return self.count("num_hidden_layers", most=_MOST_LAYERS)

    def integers(self, key: str) -> list[int]:
        """A list of whole numbers; an absent one is empty."""
        value = self.get(key, default=[])
        if not isinstance(value, list) or any(type(item) is not int for item in value):
            raise self.error(key, f"is {_shown(value)}; allowed: a list of whole numbers")
        return value

    def flag(self, *keys: str, default: bool = False) -> bool:
        value = self.get(*keys, default=default)
        if not isinstance(value, bool):
            raise self.error(keys[0], f"is {_shown(value)}; allowed: true, false")
        return value

    def require(self, key: str, allowed: tuple[object, ...], default: Any = None) -> None:
        """Accept only values under which the modelled shape holds."""
        value = self.get(key, default=default)
        if value not in allowed:
            choices = ", ".join(map(repr, allowed))
            raise self.error(key, f"{_shown(value)} is not modelled; allowed: {choices}")

    def choices(self, key: str, num_layers: int, allowed: Mapping[str, str]) -> str | None:
        """A per-layer list of names as a pattern of letters; None when the field is absent."""
        names = self.get(key)
        if names is None:
            return None
        if not isinstance(names, list) or len(names) != num_layers:
            raise self.error(
                key, f"is {_shown(names)}; allowed: a list of {num_layers} layer types"
            )
        for name in names:
            if str(name) not in allowed:
                raise self.error(
                    key, f"{_shown(name)} is no known layer type; allowed: {', '.join(allowed)}"
                )
        return "".join(allowed[str(name)] for name in names)

    def dtype(self, *keys: str, default: str) -> str:
        return dtype_named(self.get(*keys, default=default), f"{self.place}: {keys[0]}")

    def close(self) -> None:
        """UserError for a set field that speaks of geometry and that nobody has read."""
        for key, value in self._values.items():
            unread = key not in self._read and value not in _OFF
            if unread and _GEOMETRY.search(key) and not _HARMLESS.search(key):
                raise self.error(
                    key,
                    f"{_shown(value)} is not understood for this architecture and may change its "
                    "shape; allowed: leave it out, or give the model as an inline spec",
                )
