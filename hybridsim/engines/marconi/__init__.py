"""Marconi (MLSys'25, arXiv 2411.19379) by its rules, with or without its artifact's slips.

One pool of bytes, no clock, one request at a time. Reimplemented from the published rules.
"""

from hybridsim.engines.marconi.engine import POLICIES, VARIANTS, MarconiServer, formulas_for

__all__ = ["POLICIES", "VARIANTS", "MarconiServer", "formulas_for"]
