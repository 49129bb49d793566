"""GPU operators of hybrid models: one folder an operator, the truth in `naive.py`.

Nothing here knows requests, caches or experiments; the rest of hybridsim meets these kernels only
through the cost profiles that `hybridsim.kernels.calibrate` writes. Needs torch and triton.
Shapes use T tokens (of all sequences, packed), N sequences, H heads, K and V head sizes.
"""
