"""Attention over paged keys and values: GQA and MLA, prefill and decode."""

from hybridsim.kernels.attention.decode import decode
from hybridsim.kernels.attention.pages import PagedKV, write_rows
from hybridsim.kernels.attention.prefill import prefill
from hybridsim.kernels.attention.sizes import query_block

__all__ = ["PagedKV", "decode", "prefill", "query_block", "write_rows"]
