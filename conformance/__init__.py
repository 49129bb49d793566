"""Conformance kit: random traces through an engine's own cache code and through hybridsim."""
