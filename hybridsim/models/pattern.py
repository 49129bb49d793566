"""Rows of layers written as a pattern of letters."""

from collections.abc import Mapping

from hybridsim.models.attention import AttentionSpec
from hybridsim.models.ffn import MlpSpec, MoeSpec
from hybridsim.models.recurrent import RecurrentSpec
from hybridsim.models.spec import LayerSpec


def layers_of(pattern: str, letters: Mapping[str, LayerSpec]) -> tuple[LayerSpec, ...]:
    """One layer a letter, in order."""
    return tuple(letters[letter] for letter in pattern)


def every_nth_full(
    num_layers: int,
    n: int,
    recurrent: RecurrentSpec,
    full: AttentionSpec,
    ffn: MlpSpec | MoeSpec,
) -> tuple[LayerSpec, ...]:
    """Layers n, 2n, ... (from 1) with full attention, the others recurrent, one FFN each."""
    letters = {"L": LayerSpec(recurrent, ffn), "F": LayerSpec(full, ffn)}
    pattern = "".join("F" if (i + 1) % n == 0 else "L" for i in range(num_layers))
    return layers_of(pattern, letters)
