"""Runs inside the oracle's environment: the engine's own memory split on random inputs.

usage: python sizing_worker.py ORACLE_DIR OUT.json [COUNT]
Writes a list of `{"inputs", "state_slots", "kv_tokens", "slots_per_request", "max_running"}`;
`"error": true` where the engine refuses to start.
"""

import json
import os
import random
import sys
from types import SimpleNamespace

STRATEGIES = ("no_buffer", "extra_buffer", "extra_buffer_lazy")


def random_inputs(rng):
    strategy = rng.choice(STRATEGIES)
    drafts = rng.choice((0, 0, 0, 1, 3, 8))
    running = rng.choice((None, 1, 7, 48, 256)) if not drafts else rng.choice((1, 7, 48, 256))
    return {
        "memory_bytes": rng.randrange(2**28, 2**37),
        "kv_bytes_per_token": rng.choice((6144, 12288, 20480, 24576, 65536)),
        "state_bytes": rng.choice((19537920, 38412288, 64389120, 77266944, 153944064)),
        "page_size": 1 if strategy == "no_buffer" else rng.choice((1, 16, 64)),
        "strategy": strategy,
        "overlap": strategy == "extra_buffer_lazy" or rng.random() < 0.7,
        "radix": rng.random() < 0.9,
        "skip_decode_lock": rng.random() < 0.2,
        "ratio": rng.choice((0.9, 0.9, 0.2, 1.0, 3.0)),
        "max_states": rng.choice((None, None, None, 2, 10, 48, 300)),
        "max_running": running,
        "num_draft_tokens": drafts,
        "context_tokens": rng.choice((8192, 40960, 262144)),
    }


def sizes(module, context, schedule, envs, given):
    """The engine's split, with what it would ask the model runner for stubbed."""
    configurator = module.KVCacheConfigurator
    drafts = given["num_draft_tokens"]
    override = context.override_server_args(
        page_size=given["page_size"],
        device="cpu",
        attention_backend="torch_native",
        # A server without a radix cache has no extra buffer.
        mamba_radix_cache_strategy=given["strategy"] if given["radix"] else "no_buffer",
        disable_radix_cache=not given["radix"],
        disable_overlap_schedule=not given["overlap"],
        max_mamba_cache_size=given["max_states"],
        mamba_full_memory_ratio=given["ratio"],
        max_running_requests=given["max_running"],
        speculative_num_draft_tokens=drafts or None,
    )
    override.install()
    try:
        runner = SimpleNamespace(
            mambaish_config=SimpleNamespace(
                mamba2_cache_params=SimpleNamespace(
                    layers=[0], mamba_cache_per_req=given["state_bytes"]
                )
            ),
            pp_size=1,
            attn_dp_size=1,
            model_config=SimpleNamespace(context_len=given["context_tokens"]),
            fused_entry_bytes=lambda name: None,
            spec_algorithm=SimpleNamespace(is_none=lambda: not drafts),
            hybrid_gdn_config=None,
            hybrid_kda_config=None,
            extra_mamba_cache_bytes_per_req=0,
        )
        runner._calculate_mamba_ratio = lambda: configurator._calculate_mamba_ratio(runner)
        with envs.SGLANG_OPT_MAMBA_SKIP_DECODE_LOCK.override(given["skip_decode_lock"]):
            rest = configurator._handle_max_mamba_cache(runner, given["memory_bytes"] / (1 << 30))
            tokens = int(rest * (1 << 30)) // given["kv_bytes_per_token"]
            tokens = tokens // given["page_size"] * given["page_size"]
            if tokens <= 0:
                return {"inputs": given, "error": True}
            return {
                "inputs": given,
                "state_slots": schedule().max_mamba_cache_size,
                "kv_tokens": tokens,
                "slots_per_request": runner._calculate_mamba_ratio(),
                "max_running": configurator.resolve_max_num_reqs(runner, tokens),
            }
    except RuntimeError:
        return {"inputs": given, "error": True}
    finally:
        override.restore()


def main():
    out = os.path.abspath(sys.argv[2])
    sys.path.insert(0, sys.argv[1])
    os.chdir(sys.argv[1])
    import oracle
    from sglang.srt.environ import envs
    from sglang.srt.mem_cache import kv_cache_configurator
    from sglang.srt.runtime_context import get_context, get_schedule

    del oracle  # imported for its stubs
    rng = random.Random(0)
    count = int(sys.argv[3]) if len(sys.argv) > 3 else 300
    rows = [
        sizes(kv_cache_configurator, get_context(), get_schedule, envs, random_inputs(rng))
        for _ in range(count)
    ]
    with open(out, "w") as file:
        file.write("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")


if __name__ == "__main__":
    main()
