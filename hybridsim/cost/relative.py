"""Rates of kinds of layers beside each other, from a table of kernels timed in one run."""

from collections.abc import Mapping, Sequence
from typing import Any

from hybridsim.cost import efficiency as classes
from hybridsim.errors import UserError
from hybridsim.models.recurrent import recurrent

# Kernels measured one by one (results/kernels), at sizes where fixed times are small.
_SCAN_TOKENS, _CONV_TOKENS = 8192, 16384
_SCANS = {"kda": "kda", "mamba2": "ssd", "lightning": "linear"}  # kind of layer -> kernel
_NUM_HEADS, _HEAD_DIM = 16, 128

Rows = Sequence[Mapping[str, Any]]


def _row(rows: Rows, op: str, **at: int) -> Mapping[str, Any]:
    """One row of the kernels' table."""
    for row in rows:
        if row["op"] == op and all(row.get(key) == value for key, value in at.items()):
            return row
    raise UserError("--kernels", f"has no row {op!r} with {at}; allowed: a table that has it")


def _seconds(rows: Rows, op: str, **at: int) -> float:
    return float(_row(rows, op, **at)["ours"]["median_s"])


def fit_relative(rows: Rows) -> dict[str, dict[str, float]]:
    """Rates of kinds of layers as multiples of those of gated DeltaNet, and of plain attention.

    From kernels timed side by side: FLOPs a second of the chunked scans, each with the convolution
    that comes before it, and the share of its floor that latent attention reaches at decode.
    """
    conv_s = _seconds(rows, "conv prefill", tokens=_CONV_TOKENS) * _SCAN_TOKENS / _CONV_TOKENS
    base = _scan_rate(rows, "gated_deltanet", "gated_delta", conv_s)
    scans = {
        kind: _scan_rate(rows, kind, name, 0.0 if kind == "lightning" else conv_s) / base
        for kind, name in _SCANS.items()
    }
    latent, plain = (
        float(_row(rows, f"decode attention {kind}", batch=32, context=16384)["share_of_floor"])
        for kind in ("mla", "d256")
    )
    return {classes.SCAN_PREFILL: scans, classes.ATTENTION_DECODE: {"mla": latent / plain}}


def _scan_rate(rows: Rows, kind: str, name: str, conv_s: float) -> float:
    """FLOPs a second of a chunked scan; conv_s: of the convolution of as many tokens."""
    seconds = _seconds(rows, f"prefill {name}", tokens=_SCAN_TOKENS) + conv_s
    layer = recurrent(kind, _NUM_HEADS, _NUM_HEADS, _HEAD_DIM, _HEAD_DIM)
    return layer.prefill_flops(_SCAN_TOKENS) / seconds
