"""vLLM 0.33.0 and 0.27.1: the decisions of their schedulers and cache managers, step by step."""
