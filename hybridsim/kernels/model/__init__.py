"""A whole hybrid model with random weights, to time steps and parts of steps on the GPU."""
