"""Shapes of the models that can be timed, as plain numbers that need nothing installed."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ModelShape:
    """A hybrid model of Gated DeltaNet and gated full-attention layers with dense MLPs.

    `full_every`: every n-th layer is full attention. Sizes are channels; `rotary` of `head_size`.
    """

    name: str
    num_layers: int
    full_every: int
    hidden: int
    intermediate: int
    vocabulary: int
    heads: int
    kv_heads: int
    head_size: int
    rotary: int
    key_heads: int
    value_heads: int
    key_size: int
    value_size: int
    conv_width: int

    @property
    def full_layers(self) -> int:
        return self.num_layers // self.full_every

    @property
    def recurrent_layers(self) -> int:
        return self.num_layers - self.full_layers

    @property
    def conv_channels(self) -> int:
        return 2 * self.key_heads * self.key_size + self.value_heads * self.value_size

    @property
    def num_parameters(self) -> int:
        """Matrices only: norms, gates' vectors and convolutions are left out. Embeddings tied."""
        values = self.value_heads * self.value_size
        delta = self.hidden * (self.conv_channels + 2 * values + 2 * self.value_heads)
        queries = self.heads * self.head_size
        full = self.hidden * (3 * queries + 2 * self.kv_heads * self.head_size)
        mlp = 3 * self.hidden * self.intermediate
        layers = self.recurrent_layers * delta + self.full_layers * full + self.num_layers * mlp
        return layers + self.vocabulary * self.hidden


# From the checkpoint's config.json; the same numbers as the catalogue's.
QWEN35_08B = ModelShape(
    name="qwen3.5-0.8b", num_layers=24, full_every=4, hidden=1024, intermediate=3584,
    vocabulary=248320, heads=8, kv_heads=2, head_size=256, rotary=64, key_heads=16,
    value_heads=16, key_size=128, value_size=128, conv_width=4,
)  # fmt: skip

SHAPES = {shape.name: shape for shape in (QWEN35_08B,)}
