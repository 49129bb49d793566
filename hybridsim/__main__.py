"""`python -m hybridsim`."""

from hybridsim.cli import main

main()
