"""The experiment file: its keys, its sweep, its errors. Nothing above `build.py` sees a config."""

from hybridsim.config.experiment import (
    Experiment,
    Run,
    check_axes,
    expand,
    load_experiment,
    value_at,
)
from hybridsim.config.explain import validate
from hybridsim.config.overrides import override
from hybridsim.config.schema import CacheConfig, PlotConfig, RunConfig, TraceConfig
from hybridsim.config.source import Source, parse_source, parse_value, read_source
from hybridsim.config.values import Named, exact_size
from hybridsim.units import UNLIMITED

__all__ = [
    "UNLIMITED",
    "CacheConfig",
    "Experiment",
    "Named",
    "PlotConfig",
    "Run",
    "RunConfig",
    "Source",
    "TraceConfig",
    "check_axes",
    "exact_size",
    "expand",
    "load_experiment",
    "override",
    "parse_source",
    "parse_value",
    "read_source",
    "validate",
    "value_at",
]
