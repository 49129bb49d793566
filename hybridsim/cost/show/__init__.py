"""`hybridsim cost`: what the cost models say, beside what was measured."""
