"""SGLang 0.5.23: the engine's own cache classes against `hybridsim.engines.sglang`."""
