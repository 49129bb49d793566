"""The one exception for mistakes of the user: bad files, bad configs, impossible values.

The command line turns it into one clear message and exit code 2; nothing else is caught there.
"""


class UserError(Exception):
    """A mistake in the user's input.

    `place` is a file and line (`trace.jsonl:17`) or a config key (`cache.memory`);
    the message names the value found and what is allowed.
    """

    def __init__(self, place: str, message: str) -> None:
        super().__init__(f"{place}: {message}")
        self.place = place
        self.message = message

    def __reduce__(self) -> tuple[type["UserError"], tuple[str, str]]:
        """Rebuild from both parts, so that worker processes can hand the error on."""
        return type(self), (self.place, self.message)


def unknown_name(place: str, value: object, allowed: list[str]) -> UserError:
    """The error for a name that is in no registry; it lists the registry and the nearest name."""
    from difflib import get_close_matches

    near = get_close_matches(str(value), allowed, n=1)
    hint = f" (did you mean {near[0]!r}?)" if near else ""
    return UserError(place, f"unknown name {value!r}{hint}; allowed: {', '.join(allowed)}")
