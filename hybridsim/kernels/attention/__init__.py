"""Attention over paged keys and values: GQA and MLA, prefill and decode."""

from hybridsim.kernels.attention.decode import decode
from hybridsim.kernels.attention.pages import PagedKV, write_rows
from hybridsim.kernels.attention.prefill import prefill
from hybridsim.kernels.attention.sizes import query_block
from hybridsim.kernels.attention.work import PrefillWork, make_work

__all__ = [
    "PagedKV", "PrefillWork", "decode", "make_work", "prefill", "query_block", "write_rows",
]  # fmt: skip
