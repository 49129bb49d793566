"""Conformance of the vLLM engines: the same traces through the engine's own code and hybridsim."""
