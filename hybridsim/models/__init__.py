"""Shapes of language models and what follows from them: parameters, bytes and operations.

Knows nothing of caches, traces or GPUs. `get_model` is the way in. The readers of config files load
when first asked for: shapes of the catalogue need no library.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from hybridsim.models.attention import AttentionSpec, LatentSpec
from hybridsim.models.catalogue import CATALOGUE
from hybridsim.models.dtypes import Dtypes
from hybridsim.models.ffn import MlpSpec, MoeSpec
from hybridsim.models.ledger import Ledger, LedgerRow, ledger, ledger_rows
from hybridsim.models.load import get_model
from hybridsim.models.recurrent import ConvSpec, RecurrentSpec
from hybridsim.models.spec import Flops, LayerSpec, ModelSpec
from hybridsim.models.twins import all_full, attention_only

if TYPE_CHECKING:
    from hybridsim.models.hf import from_hf_config
    from hybridsim.models.inline import from_inline

_READERS = {"from_hf_config": "hybridsim.models.hf", "from_inline": "hybridsim.models.inline"}

__all__ = [
    "CATALOGUE", "AttentionSpec", "ConvSpec", "Dtypes", "Flops", "LatentSpec", "LayerSpec",
    "Ledger", "LedgerRow", "MlpSpec", "ModelSpec", "MoeSpec", "RecurrentSpec", "all_full",
    "attention_only", "from_hf_config", "from_inline", "get_model", "ledger", "ledger_rows",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _READERS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_READERS[name]), name)
