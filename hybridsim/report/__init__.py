"""Figures and the report of a result folder."""
