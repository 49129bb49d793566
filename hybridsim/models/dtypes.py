"""Number formats: how many bytes a count of elements takes."""

from dataclasses import dataclass

from hybridsim.errors import unknown_name

BITS = {
    "float32": 32, "bfloat16": 16, "float16": 16, "float8": 8, "int8": 8, "int4": 4, "float4": 4,
}  # fmt: skip

_ALIASES = {
    "fp32": "float32", "bf16": "bfloat16", "fp16": "float16", "half": "float16",
    "fp8": "float8", "fp8_e4m3": "float8", "fp8_e5m2": "float8",
    "float8_e4m3fn": "float8", "float8_e5m2": "float8", "fp4": "float4",
}  # fmt: skip


def dtype_named(value: object, place: str) -> str:
    """The canonical name of a number format; UserError at `place` for an unknown one."""
    text = str(value).removeprefix("torch.").lower()
    name = _ALIASES.get(text, text)
    if name not in BITS:
        raise unknown_name(place, value, sorted([*BITS, *_ALIASES]))
    return name


def num_bytes(num_elements: int, dtype: str) -> int:
    """Bytes of `num_elements` packed elements, rounded up to whole bytes."""
    return -(-num_elements * BITS[dtype] // 8)


@dataclass(frozen=True)
class Dtypes:
    """The number format of each kind of stored data.

    weights: parameters, and activations too unless weights are narrower than 16 bits.
    kv: keys and values. conv: cached inputs of the short convolution. state: recurrent state.
    kv_scale_bytes: bytes of one scale; one for the keys and one for the values of each KV head
    and token (one a token for a latent), 0 when KV is not scaled or scaled per tensor.
    """

    weights: str = "bfloat16"
    kv: str = "bfloat16"
    conv: str = "bfloat16"
    state: str = "float32"
    kv_scale_bytes: int = 0

    @property
    def activation_bytes(self) -> int:
        """Bytes of one activation element: quantised weights still compute in 16 bits."""
        return max(2, num_bytes(1, self.weights))
