"""What several chunks of one step cost together, from tables of equal or of single chunks."""

from collections.abc import Sequence

from hybridsim.cost.tables import Table


def scans_s(table: Table, lengths: Sequence[int]) -> float:
    """Seconds of recurrences over chunks of so many tokens, side by side.

    table: (tokens of each, number of chunks) -> seconds, with increments as `rising_increments`
    makes them, so that neither a longer chunk nor one more is ever cheaper. All run until the
    shortest ends, then the rest go on, and so forth: with n still running, tokens from a to b of
    each take table(b, n) - table(a, n).
    """
    total, done = 0.0, 0
    ordered = sorted(lengths)
    for ended, length in enumerate(ordered):
        running = len(ordered) - ended
        total += table.row(length).at(running)
        if done:
            total -= table.row(done).at(running)
        done = length
    return total
