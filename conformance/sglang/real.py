"""Compares both on real traces, scaled down, under every strategy, ample and tight.

python -m conformance.sglang.real --oracle DIR --traces ../shared/traces
"""

import argparse
import sys
from pathlib import Path
from typing import Any

from conformance.sglang.__main__ import Tally, engine_config, first_difference, report
from conformance.sglang.facts import our_facts
from conformance.sglang.oracle import Oracle
from conformance.traces import first_requests, longest_session

SETTINGS: tuple[dict[str, Any], ...] = (
    {"strategy": "no_buffer", "page_size": 1},
    {"strategy": "extra_buffer", "page_size": 1},
    {"strategy": "extra_buffer", "page_size": 16, "chunked_prefill_size": 512},
    {"strategy": "extra_buffer_lazy", "page_size": 1, "eviction_policy": "slru"},
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--oracle", type=Path, required=True)
    parser.add_argument("--traces", type=Path, required=True)
    parser.add_argument("--scale", type=int, default=16)
    arguments = parser.parse_args()
    folder, scale, tally = arguments.traces, arguments.scale, Tally()
    traces = {
        "conversation": first_requests(
            folder / "mooncake_conversation.jsonl", "mooncake", 300, scale
        ),
        "agent session": longest_session(folder / "weka_cc_traces_710.jsonl.xz", "weka", 4000, 64),
    }
    with Oracle(arguments.oracle) as oracle:
        for name, trace in traces.items():
            longest = max(len(row["tokens"]) + len(row["output"]) for row in trace)
            for setting in SETTINGS:
                for kv_share, slots in ((1.3, 12), (4.0, 60), (60.0, 5000)):
                    config = {
                        **setting,
                        "track_interval": 64,
                        "chunk_size": 16,
                        "kv_tokens": int(longest * kv_share),
                        "state_slots": slots,
                        "max_context": longest + 8,
                    }
                    tally.add(config, our_facts(engine_config(config), trace))
                    if first_difference(oracle, config, trace) is not None:
                        tally.differing += 1
                        report(oracle, config, trace)
            print(name, len(trace), "requests", tally, flush=True)
    return 1 if tally.differing else 0


if __name__ == "__main__":
    sys.exit(main())
