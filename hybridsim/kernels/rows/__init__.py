"""Row copies by index: states from slot to slot, KV pages from page to page."""

from hybridsim.kernels.rows.copy import copy_rows

__all__ = ["copy_rows"]
