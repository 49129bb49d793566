"""Mistakes of the user, each through the real command: exit 2, one message, nothing written."""

import copy
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from hybridsim.cli import main
from traces.bad_traces import BAD_TRACES

GOOD_TRACE = b'{"id": "a", "arrival_s": 0, "prompt": [["sys", 64]], "output": 3}\n'
GOOD: dict[str, Any] = {
    "name": "bad",
    "mode": "replay",
    "trace": {"format": "segments", "path": "good.jsonl"},
    "model": "qwen3.5-0.8b",
    "cache": {"memory": "1GiB", "state_fraction": 0.5, "page_size": 16},
}
TIMED = {"mode": "timed", "gpu": "h200"}


def changed(data: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted paths set to values; None removes a key."""
    result: dict[str, Any] = copy.deepcopy(dict(data))
    for path, value in changes.items():
        *parents, last = path.split(".") if path != "sweep" else ["sweep"]
        here = result
        for part in parents:
            here = here.setdefault(part, {})
        if value is None:
            here.pop(last, None)
        else:
            here[last] = value
    return result


# What is changed in a good experiment, and the texts that the message must hold: the place (a key
# or a file with its line), the value found, and what is allowed.
BAD_CONFIGS: list[tuple[str, dict[str, Any], list[str]]] = [
    ("unknown key", {"cahe": 1}, [":11: cahe", "unknown key", "'cahe'", "cache"]),
    ("misspelt key", {"cache.page_sise": 8}, ["cache.page_sise", "did you mean 'page_size'"]),
    ("missing key", {"model": None}, ["model", "is missing", "allowed"]),
    ("missing cache", {"cache": None}, ["cache", "is missing"]),
    ("unknown mode", {"mode": "reply"}, [":2: mode", "'reply'", "replay, timed"]),
    ("unknown model", {"model": "qwen3.5-0.8"}, ["model", "qwen3.5-0.8", "qwen3.5-0.8b"]),
    ("model file that is none", {"model": "no/config.json"}, ["no/config.json", "cannot be read"]),
    ("model is a number", {"model": 7}, ["model", "7", "catalogue name"]),
    ("unknown engine", {"engine": "sglang"}, ["engine", "'sglang'", "sglang-0.5.23", "research"]),
    ("engine option", {"engine": {"name": "research", "x": 1}}, ["engine.x", "cache_outputs"]),
    (
        "engine option of another type",
        {"engine": {"name": "research", "cache_outputs": "yes"}},
        ["engine.cache_outputs", "'yes'"],
    ),
    ("name of a path", {"name": "a/b"}, ["name", "'a/b'", "letters"]),
    ("name of no folder", {"name": "\u65e5" * 67}, [":1: name", "\u65e5", "200 bytes"]),
    ("unknown layout", {"cache.layout": "splt"}, ["cache.layout", "'splt'", "split, shared"]),
    ("memory is no size", {"cache.memory": "8 gigs"}, ["cache.memory", "'8 gigs'", "8GiB"]),
    ("memory is negative", {"cache.memory": -5}, ["cache.memory", "-5", "positive"]),
    ("memory is true", {"cache.memory": True}, ["cache.memory", "True", "positive size"]),
    ("memory for no state", {"cache.memory": "1MiB"}, ["state_fraction", "512 KiB", "18.63 MiB"]),
    (
        "memory for no page",
        {"cache.layout": "shared", "cache.state_fraction": None, "cache.memory": "100KiB"},
        ["cache.memory", "100 KiB", "at least"],
    ),
    ("fraction of one", {"cache.state_fraction": 1.0}, ["state_fraction", "1.0", "> 0 and < 1"]),
    ("fraction is nan", {"cache.state_fraction": float("nan")}, ["state_fraction", "nan"]),
    ("no fraction", {"cache.state_fraction": None}, ["cache.state_fraction", "is missing"]),
    ("memory and tokens", {"cache.kv_tokens": 64}, ["cache.kv_tokens", "cache.memory", "either"]),
    ("fraction in shared", {"cache.layout": "shared"}, ["state_fraction", "0.5", "layout shared"]),
    ("no capacity", {"cache": {"page_size": 16}}, ["cache.memory", "is missing", "kv_tokens"]),
    ("page of nothing", {"cache.page_size": 0}, ["cache.page_size", "0", "1 to"]),
    ("page of a half", {"cache.page_size": 0.5}, ["cache.page_size", "0.5", "integer"]),
    (
        "tokens for no page",
        {"cache": {"kv_tokens": 8, "state_slots": 2}},
        ["cache.kv_tokens", "8", "16"],
    ),
    (
        "blocks for research",
        {"cache": {"num_blocks": 8}},
        ["cache.num_blocks", "research", "page_size"],
    ),
    ("unknown checkpoint", {"cache.checkpoint": "prompt"}, ["checkpoint", "'prompt'", "branch"]),
    (
        "checkpoint parameter",
        {"cache.checkpoint": {"name": "every", "token": 5}},
        ["cache.checkpoint", "token", "tokens"],
    ),
    (
        "checkpoint parameter of zero",
        {"cache.checkpoint": {"name": "every", "tokens": 0}},
        ["cache.checkpoint", "0"],
    ),
    ("unknown eviction", {"cache.eviction": "lur"}, ["cache.eviction", "'lur'", "lru"]),
    ("timed without gpu", {"mode": "timed"}, ["gpu", "is missing", "h200"]),
    ("unknown gpu", {**TIMED, "gpu": "h2000"}, ["gpu", "'h2000'", "h200"]),
    ("no ranks", {"tp": 0}, ["tp", "0", ">= 1"]),
    ("ranks that do not divide", {"tp": 7}, ["tp", "7", "divide"]),
    ("no sequences", {**TIMED, "scheduler.max_num_seqs": 0}, ["scheduler.max_num_seqs", "0"]),
    (
        "budget below sequences",
        {**TIMED, "scheduler.max_num_batched_tokens": 8},
        ["scheduler.max_num_batched_tokens", "8", "256"],
    ),
    ("unknown arrivals", {**TIMED, "arrivals.mode": "closed"}, ["arrivals.mode", "'closed_loop'"]),
    ("rate of zero", {**TIMED, "arrivals.rate_scale": 0}, ["arrivals.rate_scale", "0", "> 0"]),
    ("negative seed", {"seed": -1}, ["seed", "-1", ">= 0"]),
    ("seed is a text", {"seed": "one"}, ["seed", "'one'", "integer"]),
    ("unknown format", {"trace.format": "segment"}, ["trace.format", "'segment'", "segments"]),
    ("unknown reader option", {"trace.jiter": True}, ["trace", "jiter", "arrivals"]),
    ("no such trace", {"trace.path": "god.jsonl"}, [":5: trace.path", "'god.jsonl'"]),
    ("no path", {"trace.path": None}, ["trace.path", "missing"]),
    ("first of none", {"trace.first": 0}, ["trace.first", "0", ">= 1"]),
    ("warm-up of all", {"trace.warmup": 1}, ["trace.warmup", "1", "< 1"]),
    ("sweep of no list", {"sweep": {"tp": 2}}, ["sweep.tp", "2", "a list"]),
    ("empty sweep", {"sweep": {"tp": []}}, ["sweep.tp", "[]", "at least one"]),
    ("sweep of a name", {"sweep": {"name": ["a"]}}, ["sweep.name", "no part of a run"]),
    ("sweep twice the same", {"sweep": {"seed": [1, 1]}}, ["sweep.seed", "1", "once"]),
    ("bad swept value", {"sweep": {"seed": [1, -2]}}, ["sweep.seed", "-2", ">= 0"]),
    ("swept key of nothing", {"sweep": {"cahe.size": [1]}}, [":12: sweep.cahe.size", "'cahe'"]),
    ("swept key without a part", {"sweep": {"cache..x": [1]}}, [":12: sweep.cache..x", "empty"]),
    ("swept key without a name", {"sweep": {"": [1]}}, ["sweep", "''", "empty", "a.b"]),
    ("bad swept key", {"sweep": {"cache.sise": [1]}}, ["sweep.cache.sise", "'sise'", "page_size"]),
    (
        "bad swept name",
        {"sweep": {"cache.checkpoint": ["none", "al_blocks"]}},
        [":14: sweep.cache.checkpoint", "'al_blocks'", "all_blocks"],
    ),
    (
        "sweep into a number",
        {"sweep": {"cache.memory.x": [1]}},
        ["sweep.cache.memory.x", "'1GiB'", "not a mapping"],
    ),
    (
        "sweep of a key and of its inside",
        {"sweep": {"cache": [1], "cache.memory": [1]}},
        ["sweep.cache", "cache.memory"],
    ),
    ("sweep without effect", {"sweep": {"gpu": ["h200", "h100"]}}, ["sweep.gpu", "mode replay"]),
    (
        "sweep of a trillion runs",
        {"sweep": {f"trace.x{axis}": list(range(10)) for axis in range(12)}},
        ["sweep", "1,000,000,000,000 runs", "20,000"],
    ),
    ("sweep is a text", {"sweep": "memory"}, ["sweep", "'memory'", "mapping"]),
    (
        "figure of an unknown metric",
        {"sweep": {"seed": [1, 2]}, "plots": [{"x": "seed", "y": "hit"}]},
        ["plots.0.y", "'hit'", "token_hit_rate"],
    ),
    (
        "figure over an unswept key",
        {"plots": [{"x": "seed", "y": "token_hit_rate"}]},
        ["plots.0.x", "'seed'", "not swept"],
    ),
    ("figure of times in replay", {"plots": [{"kind": "cdf"}]}, ["plots.0.kind", "'cdf'", "timed"]),
    ("unknown kind of figure", {"plots": [{"kind": "pie"}]}, ["plots.0.kind", "'pie'", "curve"]),
    ("plots is a mapping", {"plots": {"x": "seed"}}, ["plots", "a list of mappings"]),
]  # fmt: skip


def _bomb(num_levels: int) -> bytes:
    """Ten times as many values a level, in a few hundred bytes."""
    names = "abcdefghijklmnop"[: num_levels + 1]
    lines = ["a: &a [x, x, x, x, x, x, x, x, x, x]"]
    for below, name in zip(names, names[1:], strict=False):
        lines.append(f"{name}: &{name} [{', '.join([f'*{below}'] * 10)}]")
    return "\n".join(lines).encode()


BAD_TEXTS: list[tuple[str, bytes, list[str]]] = [
    ("empty experiment", b"", ["bad.yaml:1", "empty", "a mapping"]),
    ("a list", b"- 1\n", ["bad.yaml:1", "a list", "a mapping"]),
    ("broken YAML", b"name: x\ncache: {memory: [1\n", ["bad.yaml:3", "not valid YAML"]),
    ("a tab", b"name: x\n\tmode: replay\n", ["bad.yaml:2", "not valid YAML"]),
    ("a key given twice", b"name: x\nseed: 1\nseed: 2\n", ["bad.yaml:3: seed", "line 2", "once"]),
    ("a number as key", b"name: x\n3: 1\n", ["bad.yaml:2", "'3'", "a text"]),
    ("a list as key", b"name: x\n? [a]\n: 1\n", ["bad.yaml:2", "a list is not", "a text"]),
    ("an alias of itself", b"name: &a [*a]\n", ["bad.yaml:1", "itself"]),
    ("not UTF-8", b"name: \xff\n", ["bad.yaml", "byte 6", "UTF-8"]),
    ("a bomb of aliases", _bomb(9), ["bad.yaml:", "too many values", "200,000"]),
    ("deep lists", b"name: " + b"[" * 3000 + b"]" * 3000, ["bad.yaml", "nested", "64 levels"]),
    ("deep mappings", b"name: " + b"{a: " * 70 + b"}" * 70, ["bad.yaml:1", "nested", "64"]),
    ("giant integer", b"name: x\nseed: " + b"9" * 5000, ["bad.yaml:2", "999...999", "64 bits"]),
    ("a set", b"name: x\nseed: !!set {a}\n", ["bad.yaml:2", "set", "basic types"]),
    ("a date", b"seed: !!timestamp 2020-01-01\n", ["bad.yaml:1", "timestamp", "basic types"]),
    ("a text as integer", b"seed: !!int abc\n", ["bad.yaml", "not valid YAML", "abc"]),
    ("half a character", b'name: "\\ud800"\n', ["bad.yaml:1", "ud800", "surrogate"]),
    ("a zero byte", b'model: "a/\\0"\n', ["bad.yaml:1", "x00", "zero"]),
    ("an object of Python", b"name: !!python/object:os.system {}\n", ["bad.yaml:1", "YAML"]),
]

ONE_GIB = "{memory: 1GiB}"
FEW_SHOT = "format: generate, generator: few_shot"
WINDOW_IN_WORDS = "{name: sglang-0.5.23, sliding_window: 128, swa_tokens: many}"


def _set(**values: str) -> list[str]:
    return [text for key, value in values.items() for text in ("--set", f"{key}={value}")]


BAD_ARGUMENTS: list[tuple[str, list[str], list[str]]] = [
    ("no such experiment", ["run", "god.yaml"], ["god.yaml", "good.yaml"]),
    ("a folder", ["run", "."], [".", "a file"]),
    ("a name that is too long", ["run", "g" * 300], ["ggg", "no such file", "an existing file"]),
    ("a trace of such a name", ["trace", "stats", "g" * 300], ["too long", "a trace file"]),
    ("no value", ["run", "good.yaml", "--set", "seed"], ["--set seed", "a.b=value"]),
    ("bad value", ["run", "good.yaml", "--set", "tp=-1"], ["--set tp", "-1", ">= 1"]),
    ("unknown key", ["run", "good.yaml", "--set", "cache.memroy=1"], ["memroy", "'memory'"]),
    ("not YAML", ["run", "good.yaml", "--set", "tp={"], ["--set tp", "not valid YAML"]),
    (
        "giant value",
        ["run", "good.yaml", "--set", f"seed={'9' * 5000}"],
        ["--set seed", "999...999", "64 bits"],
    ),
    (
        "a deep path",
        ["run", "good.yaml", "--set", f"{'a.' * 5000}a=1"],
        ["--set a.a", "dots", "64"],
    ),
    ("no processes", ["run", "good.yaml", "--jobs", "0"], ["--jobs", "0", ">= 1"]),
    ("unknown executor", ["run", "good.yaml", "--executor", "dask"], ["'dask'", "local, ray"]),
    ("out is a file", ["run", "good.yaml", "--out", "good.jsonl"], ["--out", "folder"]),
    ("report of nothing", ["report", "nowhere"], ["nowhere", "no such file", "run"]),
    # devices never end
    ("a device", ["run", "/dev/zero"], ["/dev/zero", "is a device", "a file"]),
    (
        "a device as model",
        ["run", "good.yaml", "--set", "model=/dev/zero"],
        ["/dev/zero", "is a device", "a file"],
    ),
    ("a device as trace", ["trace", "stats", "/dev/zero"], ["/dev/zero", "device", "plain file"]),
    (
        "a device as profile",
        ["run", "good.yaml", *_set(mode="timed", gpu="{name: h200, profile: /dev/zero}")],
        ["/dev/zero", "is a device", "a file"],
    ),
    (
        "no path of a profile",
        ["run", "good.yaml", *_set(mode="timed", gpu="{name: h200, profile: ''}")],
        ["cannot be read", "a file"],
    ),
    (
        "more requests than numbers",
        ["trace", "stats", "good.jsonl", "--first", "9" * 30],
        ["trace.first", "9" * 30, "requests, 1 to"],
    ),
    (
        "a page of more than all tokens",
        ["curve", "good.jsonl", "--model", "qwen3.5-0.8b", "--page-size", "9" * 30],
        ["cache.page_size", "999", "1 to 2147483647"],
    ),
    (
        "a workload of more than all memory",
        ["trace", "generate", "chat", "x.jsonl", "--num-sessions", "9" * 30],
        ["trace.num_sessions", "999", "10000000"],
    ),
    (
        "more examples than a prompt holds",
        ["run", "good.yaml", *_set(trace=f"{{{FEW_SHOT}, max_shots: 10001}}")],
        ["trace.max_shots", "10001", "10000"],
    ),
    # null is no number
    *(
        (
            f"no {key} of {engine}",
            ["run", "good.yaml", *_set(engine=f"{{name: {engine}, {key}: null}}", cache=ONE_GIB)],
            [f"engine.{key}", "None", "allowed: "],
        )
        for engine, keys in {
            "vllm-0.33.0": ("spec_k", "spec_accept", "draft_layers"),
            "sglang-0.5.23": ("track_interval", "chunk_size", "chunked_prefill_size"),
        }.items()
        for key in keys
    ),
    (
        "a window in words",
        ["run", "good.yaml", *_set(engine=WINDOW_IN_WORDS, cache=ONE_GIB)],
        ["engine.swa_tokens", "'many'", "a positive whole number"],
    ),
    # what ends in no picture format is not begun under another name
    *(
        (
            f"a figure in {name!r}",
            ["model", "ledger", "qwen3.5-0.8b", "--figure", name],
            ["--figure", repr(name), ".png, .svg or .pdf"],
        )
        for name in ("picture", "picture.docx", ".png", "a.json")
    ),
    ("letters that steer a terminal", ["run", "\x1b[31m.yaml"], [r"\x1b[31m.yaml", "no such file"]),
]  # fmt: skip


def _dump(data: Mapping[str, Any]) -> str:
    return yaml.safe_dump(dict(data), sort_keys=False)


def _cases() -> Iterator[Any]:
    for name, changes, expected in BAD_CONFIGS:
        text = _dump(changed(GOOD, changes))
        yield pytest.param(["run", "bad.yaml"], text, None, expected, id=f"config: {name}")
    for name, data, expected in BAD_TEXTS:
        yield pytest.param(["run", "bad.yaml"], data, None, expected, id=f"text: {name}")
    for name, arguments, expected in BAD_ARGUMENTS:
        yield pytest.param(arguments, "", None, expected, id=f"arguments: {name}")
    for name, form, data, expected in BAD_TRACES:
        text = _dump(changed(GOOD, {"trace": {"format": form, "path": "broken.jsonl"}}))
        texts = ["broken.jsonl", *expected]
        yield pytest.param(["run", "bad.yaml"], text, data, texts, id=f"trace: {name}")


@pytest.mark.parametrize(("arguments", "experiment", "trace", "expected"), list(_cases()))
def test_a_mistake_ends_in_one_clear_message(
    arguments: list[str],
    experiment: str | bytes,
    trace: bytes | None,
    expected: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = experiment if isinstance(experiment, bytes) else experiment.encode()
    (tmp_path / "bad.yaml").write_bytes(text)
    (tmp_path / "good.yaml").write_text(yaml.safe_dump(GOOD))
    (tmp_path / "good.jsonl").write_bytes(GOOD_TRACE)
    if trace is not None:
        (tmp_path / "broken.jsonl").write_bytes(trace)
    before = sorted(tmp_path.rglob("*"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["hybridsim", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    errors = capsys.readouterr().err
    assert ended.value.code == 2, errors
    assert "Traceback" not in errors
    assert errors.startswith("error: ")
    assert "\x1b" not in errors
    for part in expected:
        assert part in errors
    assert sorted(tmp_path.rglob("*")) == before


def test_there_are_at_least_thirty_kinds() -> None:
    assert len(BAD_CONFIGS) + len(BAD_TEXTS) >= 30
    assert len(BAD_TRACES) >= 30


def test_the_good_experiment_is_good(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the cases above could fail for another reason than their own."""
    (tmp_path / "good.yaml").write_text(yaml.safe_dump(GOOD))
    (tmp_path / "good.jsonl").write_bytes(GOOD_TRACE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["hybridsim", "run", "good.yaml"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    assert (tmp_path / "results" / "bad" / "report.html").is_file()
