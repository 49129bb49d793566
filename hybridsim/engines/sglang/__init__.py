"""SGLang 0.5.23's hybrid prefix cache: the decisions of its unified radix tree, one by one."""
