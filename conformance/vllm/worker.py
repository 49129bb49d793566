"""Runs inside the oracle's environment: jobs on stdin, facts on stdout, one JSON object a line.

A job is `{"config", "trace", "digest_every"}`, an answer `{"info", "requests", "steps"}`; `steps`
holds after every n-th step a digest of the free queue's order and of every block's references,
group and hash length.
Everything that decides is the engine's own code; this file only watches.
usage: PYTHONPATH=SOURCES python worker.py ORACLE_DIR
"""

import json
import os
import sys
import traceback
from zlib import crc32

KEPT = (
    "id", "prompt", "output", "chunks", "allocated", "evicted", "alloc_fail", "preempted",
    "max_held", "hit", "junction", "free_after", "cached_after", "step_done", "error",
)  # fmt: skip


class PoolWatch:
    """A log for the driver: it is written once a step, and then looks at the pool."""

    def __init__(self, oracle):
        self.pool = None
        self.start(1)
        self._group = oracle.get_group_id
        build = oracle.build

        def watched(config):
            parts = build(config)
            self.pool = parts[0].kv_cache_manager.block_pool
            return parts

        oracle.build = watched

    def start(self, digest_every):
        self.digests, self.num_steps, self.digest_every = [], 0, digest_every

    def write(self, line):
        self.num_steps += 1
        if self.num_steps % self.digest_every:
            return
        free = [block.block_id for block in self.pool.free_block_queue.get_all_free_blocks()]
        blocks = [
            [
                0 if block.is_null else block.ref_cnt,
                -1 if block.block_hash is None else self._group(block.block_hash),
                block.block_hash_num_tokens or 0,
            ]
            for block in self.pool.blocks
        ]
        self.digests.append(crc32(json.dumps([free, blocks]).encode()))


def with_priorities(oracle, request_class, trace):
    """The driver knows no priorities; give each request the one of its line."""
    priorities = {row["id"]: row.get("priority", 0) for row in trace}

    def make(**given):
        return request_class(**given, priority=priorities[given["request_id"]])

    oracle.Request = make


def answer(oracle, watch, request_class, job):
    watch.start(job.get("digest_every", 1))
    with_priorities(oracle, request_class, job["trace"])
    try:
        info, requests = oracle.run(job["config"], job["trace"], watch)
    except Exception:
        text = traceback.format_exc(limit=-2)
        return {"died": text.strip().splitlines()[-1], "trace": text, "steps": watch.digests}
    rows = [{key: row[key] for key in KEPT if key in row} | _unfinished(row) for row in requests]
    return {"info": info, "requests": rows, "steps": watch.digests}


def _unfinished(row):
    return {"unfinished": row["unfinished"]} if "unfinished" in row else {}


def main():
    sys.path.insert(0, sys.argv[1])
    os.chdir(sys.argv[1])
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # the engine's own prints must not mix with the answers
    import oracle

    watch, request_class = PoolWatch(oracle), oracle.Request
    for line in sys.stdin:
        facts = answer(oracle, watch, request_class, json.loads(line))
        print(json.dumps(facts), file=answers, flush=True)


if __name__ == "__main__":
    main()
