"""What policies that weigh FLOPs or bytes have in common: the run's setting, kept."""

from dataclasses import dataclass, field
from typing import ClassVar

from hybridsim.policies.base import EvictionPolicy, Setting


@dataclass
class Informed(EvictionPolicy):
    """Keeps the setting that it is prepared with."""

    needs_setting: ClassVar[bool] = True

    _setting: Setting | None = field(default=None, init=False, repr=False)

    def prepare(self, setting: Setting) -> None:
        self._setting = setting

    def _given(self) -> Setting:
        assert self._setting is not None, "prepare was not called"
        return self._setting
