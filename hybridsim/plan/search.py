"""Two small searches over settings, each step a replay: one key after another, and along a split.

Neither is exhaustive. Both keep what they have unless something is really better, so that what
they return was replayed and nothing they saw beats it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hybridsim.plan.bench import Bench, Settings, Trial

LEAST_GAIN = 1e-4  # a hundredth of a point: below it a change of settings is not worth its name
_MOST_MOVES = 6


@dataclass(frozen=True, slots=True)
class Neighbours:
    """A trial and those one step of the fraction below and above, where such a split exists."""

    below: Trial | None
    at: Trial
    above: Trial | None


def better(challenger: Trial | None, holder: Trial) -> bool:
    """More hits first, then fewer refusals: a refused prompt counts as one without a hit."""
    if challenger is None:
        return False
    gain = challenger.token_hit_rate - holder.token_hit_rate
    if abs(gain) <= LEAST_GAIN:
        return challenger.num_refused < holder.num_refused
    return gain > 0


def best_of(trials: Sequence[Trial]) -> Trial:
    """The best; of nearly equal ones the earliest."""
    best = trials[0]
    for trial in trials[1:]:
        if better(trial, best):
            best = trial
    return best


def descend(bench: Bench, start: Trial, axes: Mapping[str, Sequence[Any]]) -> Trial:
    """The best value of each key in turn, the others held. Values not allowed are passed over.

    The first value of a key is what the engine does without it, so it is not tried again.
    """
    best = start
    for key, (_, *others) in axes.items():
        if key in bench.fixed:
            continue
        tried = [bench.attempt({**best.settings, key: value}) for value in others]
        best = best_of([best, *[trial for trial in tried if trial is not None]])
    return best


WithFraction = Callable[[Settings, float], Settings]


def climb(
    bench: Bench, start: Trial, fraction: float, step: float, with_fraction: WithFraction
) -> tuple[float, Neighbours]:
    """Move a step up or down the split while that is better; the last stand with its neighbours."""
    at = start
    for _ in range(_MOST_MOVES):
        found = {
            value: bench.attempt(with_fraction(at.settings, value))
            for value in steps_around(fraction, step)
        }
        options = [(value, trial) for value, trial in found.items() if trial is not None]
        winner = best_of([at, *[trial for _, trial in options]])
        if winner is at:
            break
        fraction, at = next(option for option in options if option[1] is winner)
    return fraction, neighbours(bench, at, fraction, step, with_fraction)


def neighbours(
    bench: Bench, at: Trial, fraction: float, step: float, with_fraction: WithFraction
) -> Neighbours:
    """A trial and its two neighbours, replayed if they were not."""
    low, high = steps_around(fraction, step)
    below = bench.attempt(with_fraction(at.settings, low))
    above = bench.attempt(with_fraction(at.settings, high))
    return Neighbours(below, at, above)


def steps_around(fraction: float, step: float) -> tuple[float, float]:
    """A step below and above; half of what is left where a whole step would leave (0, 1)."""
    below = fraction - step if fraction > step else fraction / 2
    above = fraction + step if fraction + step < 1 else (1 + fraction) / 2
    return below, above
