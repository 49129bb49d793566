"""hybridsim: a prefix-cache simulator for hybrid (attention + recurrent) language models."""

__version__ = "0.1.0"
