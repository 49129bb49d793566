"""The one exception for mistakes of the user: bad files, bad configs, impossible values.

The command line, and programs started by `python -m`, turn it into one clear message and exit
code 2.
"""

from collections.abc import Iterable


class UserError(Exception):
    """A mistake in the user's input.

    `place` is a file and line (`trace.jsonl:17`) or a config key (`cache.memory`);
    the message names the value found and what is allowed.
    """

    def __init__(self, place: str, message: str) -> None:
        # both as args, so that worker processes and event loops can rebuild the error
        super().__init__(place, message)
        self.place = place
        self.message = message

    def __str__(self) -> str:
        return f"{self.place}: {self.message}"


def shorten(value: object, length: int = 60) -> str:
    """`value` for a message: its middle is left out where it is longer than `length`."""
    text = value if isinstance(value, str) else repr(value)
    half = (length - 3) // 2
    return text if len(text) <= length else f"{text[:half]}...{text[-half:]}"


def printable(text: str) -> str:
    """What of a user's text would steer the terminal is shown, not sent; line ends stay."""
    return "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)


def unknown_name(place: str, value: object, allowed: list[str]) -> UserError:
    """The error for a name that is in no registry; it lists the registry and the nearest name."""
    hint, names = did_you_mean(value, allowed), ", ".join(allowed) or "none"
    return UserError(place, f"unknown name {shorten(repr(value))}{hint}; allowed: {names}")


def did_you_mean(value: object, allowed: Iterable[str]) -> str:
    """` (did you mean 'x'?)` or nothing."""
    from difflib import get_close_matches

    near = get_close_matches(str(value)[:200], list(allowed), n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""
