"""Cost profiles: each part of a model's step, measured over a grid, written to a file."""
