"""The same jobs through hybridsim, answered in the driver's words."""

import json
from collections.abc import Iterable
from dataclasses import fields
from typing import Any
from zlib import crc32

import numpy as np

from hybridsim.engines.content import Content
from hybridsim.engines.vllm.geometry import geometry_of
from hybridsim.engines.vllm.layout import Geometry, Layout, build_layout
from hybridsim.engines.vllm.names import block_keys
from hybridsim.engines.vllm.options import VLLMOptions
from hybridsim.engines.vllm.scheduler import Scheduler
from hybridsim.engines.vllm.sequence import Sequence
from hybridsim.models import get_model
from hybridsim.request import Spans

Row = dict[str, Any]

_DTYPE_BYTES = {"bf16": 2, "fp16": 2, "fp32": 4, "fp8": 1}
_OPTION_NAMES = {field.name for field in fields(VLLMOptions)}
_SEQUENTIAL_LIMITS = (5, 20)
_CONCURRENT_LIMITS = (20, 50)


def options_of(config: Row, version: str) -> VLLMOptions:
    """Our options for a driver's configuration, with the driver's defaults."""
    known = {key: value for key, value in config.items() if key in _OPTION_NAMES}
    if config.get("spec_k"):
        lookahead = config.get("hash_lookahead", 0)
        known["hash_lookahead"] = lookahead
        known["eagle_drop"] = version == "0.27.1" or (
            config.get("eagle_drop", True) and not lookahead
        )
    return VLLMOptions(**{"retention": 0, **known, "version": version})


def driver_geometry(config: Row, options: VLLMOptions) -> Geometry:
    """The geometry of a catalogue model, or of one whose state's shapes the driver spells out."""
    model = config["model"]
    if isinstance(model, str):
        return geometry_of(get_model(model), options)
    kv = (1 if model.get("mla") else 2) * model["kvh"] * model["hd"]
    dtype = _DTYPE_BYTES[config.get("kv_dtype", "bf16")]
    state = sum(int(np.prod(shape)) * _DTYPE_BYTES[kind] for shape, kind in model["state"])
    return Geometry(model["attn"], model["lin"], kv * dtype, state, is_mla=model.get("mla", False))


def token_spans(tokens: list[int]) -> Spans:
    """One span a token."""
    ids = np.array(tokens, dtype=np.int64)
    return Spans(ids, np.arange(1, len(ids) + 1, dtype=np.int64), len(ids))


class Run:
    """One job. `leap` skips quiet decode steps, so that step digests are not recorded."""

    def __init__(
        self,
        config: Row,
        trace: list[Row],
        version: str,
        *,
        leap: bool = False,
        digest_every: int = 1,
    ) -> None:
        self.options = options_of(config, version)
        self.layout: Layout = build_layout(driver_geometry(config, self.options), self.options)
        self.num_blocks = config.get("num_blocks") or self.layout.num_blocks(config["memory_bytes"])
        self.scheduler = Scheduler(self.layout, self.options, self.num_blocks, record_held=not leap)
        self.is_concurrent = config.get("mode", "sequential") != "sequential"
        self.trace, self.leap, self.digest_every = trace, leap, digest_every
        self.digests: list[int] = []
        self.rows: list[Row] = []
        self.names: list[str] = []
        self.step_number = 0

    def answer(self) -> Row:
        """What happened, in the form the worker answers in."""
        (self._concurrent if self.is_concurrent else self._sequential)()
        self.scheduler.cache.check()
        info = {
            "block_size": self.layout.block_size,
            "hash_block_size": self.layout.unit,
            "bytes_per_block": self.layout.bytes_per_block,
            "num_blocks": self.num_blocks,
        }
        return {"info": info, "requests": self.rows, "steps": self.digests}

    def _sequence(self, row: Row) -> Sequence:
        index = len(self.names)
        self.names.append(row["id"])
        content = Content.of(token_spans(row["tokens"]), token_spans(row["output"]))
        lookahead = self.options.lookahead_tokens
        return Sequence(
            index=index,
            request_id=row["id"],
            num_prompt_tokens=len(row["tokens"]),
            num_output_tokens=len(row["output"]),
            keys=block_keys(content, self.layout.unit, lookahead),
            unit=self.layout.unit,
            lookahead_tokens=lookahead,
            priority=row.get("priority", 0),
        )

    def _step(self, next_arrival: int | None = None) -> tuple[int, list[Sequence]]:
        if self.leap:
            most = None if next_arrival is None else next_arrival - self.step_number - 1
            self.step_number += self.scheduler.leap(most)
        step = self.scheduler.schedule()
        self.step_number += 1
        finished = self.scheduler.complete(step)
        if not self.leap and self.scheduler.num_steps % self.digest_every == 0:
            self.digests.append(self._digest())
        return step.num_tokens, finished

    def _digest(self) -> int:
        pool = self.scheduler.cache.pool
        blocks = [
            [references, -1 if key is None else key.group, num_tokens]
            for references, key, num_tokens in zip(
                pool.references, pool.main_key, pool.key_tokens, strict=True
            )
        ]
        return crc32(json.dumps([list(pool.free_queue), blocks]).encode())

    def _sequential(self) -> None:
        most_idle, most_preempted = _SEQUENTIAL_LIMITS
        for row in self.trace:
            seq, idle, error = self._sequence(row), 0, None
            self.scheduler.add(seq)
            while not seq.is_finished and error is None:
                num_tokens, _ = self._step()
                idle = 0 if num_tokens else idle + 1
                if idle > most_idle:
                    error = "stuck"
                elif seq.num_preemptions > most_preempted:
                    error = "livelock"
            self._report(seq, error)
            if error:
                return

    def _concurrent(self) -> None:
        most_idle, most_preempted = _CONCURRENT_LIMITS
        pending, live, idle = list(self.trace), dict[str, Sequence](), 0
        while pending or live:
            while pending and pending[0].get("arrival_step", 0) <= self.step_number:
                row = pending.pop(0)
                live[row["id"]] = self._sequence(row)
                self.scheduler.add(live[row["id"]])
            next_arrival = pending[0].get("arrival_step", 0) if pending else None
            num_tokens, finished = self._step(next_arrival)
            for seq in sorted(finished, key=lambda seq: seq.index):
                del live[seq.request_id]
                self._report(seq, None)
            idle = 0 if num_tokens else idle + 1
            if not live and pending:
                self.step_number = max(self.step_number, pending[0].get("arrival_step", 0))
                idle = 0
            error = "livelock" if _any_above(live.values(), most_preempted) else None
            error = error or ("stuck" if idle > most_idle else None)
            if error:
                self.rows.append({"error": error, "unfinished": list(live)})
                return

    def _report(self, seq: Sequence, error: str | None) -> None:
        pool = self.scheduler.cache.pool
        cached = {str(g): len(blocks) for g, blocks in enumerate(pool.cached) if blocks}
        evicted = [[e.block, e.group, e.num_tokens, self.names[e.owner]] for e in seq.evictions]
        row: Row = {
            "id": seq.request_id,
            "prompt": seq.num_prompt_tokens,
            "output": seq.num_output_tokens,
            "chunks": [list(chunk) for chunk in seq.chunks],
            "allocated": seq.num_allocated_blocks,
            "evicted": evicted,
            "alloc_fail": seq.num_refusals,
            "preempted": seq.num_preemptions,
            "max_held": seq.held or None,
            "hit": seq.chunks[0][0] if seq.chunks else None,
            "junction": seq.junction,
            "free_after": pool.num_free,
            "cached_after": cached,
            "step_done": self.step_number,
        }
        self.rows.append(row | ({"error": error} if error else {}))


def _any_above(seqs: Iterable[Sequence], limit: int) -> bool:
    return any(seq.num_preemptions > limit for seq in seqs)
