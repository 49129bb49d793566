"""The model commands as a user meets them."""

import sys

import pytest
from typer.testing import CliRunner

from hybridsim.cli.app import app, main
from hybridsim.models import CATALOGUE


def run(*words: str) -> str:
    result = CliRunner().invoke(app, ["model", *words], catch_exceptions=False)
    assert result.exit_code == 0
    return result.output


def refused(monkeypatch, capsys, *words: str) -> str:
    monkeypatch.setattr(sys, "argv", ["hybridsim", "model", *words])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    return capsys.readouterr().err


def test_list_names_every_model_with_its_source():
    output = run("list")
    assert all(name in output for name in CATALOGUE)
    assert "moonshotai/Kimi-Linear-48B-A3B-Instruct config.json" in output


def test_show_prints_the_handbooks_figures():
    output = run("show", "qwen3.5-0.8b", "--extra-conv-columns", "1")
    for text in ("752.4 M", "12,288 B (12 KiB)", "49,152 B (48 KiB)", "18 MiB", "864 KiB",
                 "18.84 MiB", "536 tokens", "18 gated_deltanet, 6 gqa"):  # fmt: skip
        assert text in output


def test_show_takes_ranks_and_formats():
    formats = ("--kv-dtype", "fp8", "--state-dtype", "bf16")
    output = " ".join(run("show", "qwen3.5-35b-a3b", "--tp", "2", *formats).split())
    assert "one rank of 2" in output
    # 10 layers x 2 x 1 x 256 x 1 B; half of 32,931,840 B
    assert "KV per token (float8) 5,120 B" in output
    assert "16,465,920 B" in output


def test_show_an_attention_only_model():
    output = run("show", "llama-3.1-8b")
    assert "131,072 B (128 KiB)" in output
    assert "checkpoint" not in output


def test_ledger_table_and_figure(tmp_path):
    figure = tmp_path / "ledger.png"
    output = run("ledger", "handbook-48", "--contexts", "4096,512, 1024", "--figure", str(figure))
    rows = [line.split() for line in output.splitlines()]
    assert ["512", "48", "MiB", "84", "MiB", "175%", "6.0x"] in rows
    assert ["1,024", "96", "MiB", "96", "MiB", "100%", "3.0x"] in rows
    assert ["4,096", "384", "MiB", "168", "MiB", "44%", "0.8x"] in rows
    assert "crossover: 1,024 tokens" in output
    assert figure.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("command", [(), ("list",), ("show",), ("ledger",)])
def test_help_has_an_example(command):
    assert "Example: hybridsim model" in run(*command, "--help")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["show", "qwen3.5-08b"], "did you mean"),
        (["show", "qwen3.5-0.8b", "--tp", "3"], "tp: 3 does not divide"),
        (["show", "qwen3.5-0.8b", "--tp", "0"], "tp: 0 is not a number of ranks"),
        (["show", "qwen3.5-0.8b", "--kv-dtype", "fp5"], "unknown name 'fp5'"),
        (["show", "missing/config.json"], "cannot be read"),
        (["ledger", "qwen3.5-0.8b", "--contexts", "512,x"], "'x' is not a length"),
        (["ledger", "qwen3.5-0.8b", "--contexts", "0"], "'0' is not a length"),
        (["ledger", "qwen3.5-0.8b", "--contexts", "9" * 5000], "at most 15 digits"),
        (["ledger", "qwen3.5-0.8b", "--figure", "x.docx"], "ending '.docx'; allowed: a name"),
        (["ledger", "qwen3.5-0.8b", "--figure", "no/folder/x.png"], "cannot be written"),
    ],
)
def test_mistakes_end_with_code_2_and_one_message(words, says, monkeypatch, capsys):
    assert says in refused(monkeypatch, capsys, *words)
