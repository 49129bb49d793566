"""`hybridsim cost`: points beside predictions, tables, figures, files, and wrong options."""

import csv
import json
from math import fsum
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from hybridsim.cli.app import app
from hybridsim.cost import GPUS, PrefillChunk, RooflineCost
from hybridsim.cost.efficiency import CLASSES, Ceiling, Efficiency
from hybridsim.cost.parts import PARTS
from hybridsim.cost.profiles import shipped_profiles
from hybridsim.cost.show.command import step_errors
from hybridsim.cost.show.points import StepPoint, part_points, predicted_s
from hybridsim.cost.show.subject import Subject, Wish, find_subjects, make_subject, shipped
from hybridsim.errors import UserError
from hybridsim.models import get_model
from tests.cost.test_measured import profile_data

MODEL = get_model("qwen3.5-0.8b")
RUNNER = CliRunner()
# A png starts with these bytes (ISO/IEC 15948).
PNG = b"\x89PNG\r\n\x1a\n"


def small_profile(folder: Path) -> Path:
    """A profile of straight lines on a card of our own, with two steps."""
    data = profile_data() | {
        "model": "qwen3.5-0.8b", "state_bytes": MODEL.state_bytes,
        "fit_steps": [
            {"chunks": [[64, 0]], "num_decodes": 0, "decode_context_tokens": 0, "median_s": 2e-3},
            {"chunks": [], "num_decodes": 8, "decode_context_tokens": 800, "median_s": 1.5e-3},
        ],
    }  # fmt: skip
    path = folder / "profile.json"
    path.write_text(json.dumps(data))
    return path


def rows(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


def test_parts_and_classes_of_kernels_cover_each_other():
    """Each class of the roofline stands beside exactly one part that steps are priced by."""
    named = [name for part in PARTS.values() if not part.lookup for name in part.classes]
    assert sorted(named) == sorted(CLASSES)


@given(st.integers(1, 5000), st.integers(0, 9000), st.integers(0, 200), st.integers(0, 3000))
def test_the_parts_shown_are_those_of_a_step(new, prefix, decodes, context):
    """Of a step with one chunk and decodes, the roofline's parts at the points where the step
    stands add up to it; only what is no part of a profile (a step's overhead) comes on top."""
    times = Efficiency({part: Ceiling(0.5, 0.5) for part in CLASSES}, step_overhead_s=1e-4)
    cost = RooflineCost(MODEL, GPUS["h200"], times)
    chunk = PrefillChunk(new, prefix)
    step_s = cost.step_s([chunk], decodes, decodes * context, 3 * MODEL.state_bytes)
    at = {
        "dense": (new + decodes,), "head": (1 + decodes,), "recurrent_prefill": (new, 1),
        "full_prefill": (new, prefix), "copy": (3,),
    }  # fmt: skip
    if decodes:
        at |= {"recurrent_decode": (decodes,), "full_decode": (decodes, context)}
    total_s = times.step_overhead_s
    for part, place in at.items():
        shown = cost.parts_s(*PARTS[part].step_at(place, MODEL.state_bytes))
        total_s += fsum(shown.get(name, 0.0) for name in PARTS[part].classes)
    assert total_s == pytest.approx(step_s)


def test_interpolation_meets_the_measured_points(tmp_path):
    """A part's line goes through its own points where measured times rise, as these do."""
    subject = make_subject("ours", MODEL, 1, small_profile(tmp_path))
    points = list(part_points(subject))
    assert len(points) == sum(len(x["points"]) for x in profile_data()["operators"].values())
    for point in points:
        assert point.interpolated_s == pytest.approx(point.measured_s), point
        assert point.roofline_s is None
    # Between the points 100 and 1000 of a straight line: 1 ms + 500 us.
    assert predicted_s(subject, "dense", (500,)) == (pytest.approx(1.5e-3), None)


def test_errors_are_told_of_each_kind_of_step():
    """Two decode steps at +10 % and -10 %, one prefill at +30 %; the roofline is not there."""
    points = [
        StepPoint(kind, 0, 0, 0, 1, 1, 1e-3, seconds, None)
        for kind, seconds in (("decode", 1.1e-3), ("decode", 0.9e-3), ("prefill", 1.3e-3))
    ]
    found = {(model, kind): result for model, kind, result in step_errors(points)}
    assert set(found) == {("measured model", kind) for kind in ("all", "decode", "prefill")}
    assert found["measured model", "decode"].bias == pytest.approx(0)
    assert found["measured model", "decode"].median_absolute == pytest.approx(0.1)
    assert found["measured model", "all"].bias == pytest.approx(0.1)
    assert found["measured model", "all"].largest == pytest.approx(0.3)


def test_a_measured_profile_is_shown_with_everything(tmp_path):
    steps = tmp_path / "steps.json"
    data = json.loads(shipped_profiles()["h200", "qwen3.5-0.8b", 1].read_text())
    steps.write_text(json.dumps({"model": "qwen3.5-0.8b", "tp": 1, "steps": data["fit_steps"][:9]}))
    out = tmp_path / "out"
    result = RUNNER.invoke(
        app, ["cost", "show", "--model", "qwen3.5-0.8b", "--gpu", "h200", "--steps", str(steps),
              "--out", str(out)],
    )  # fmt: skip
    assert result.exit_code == 0
    assert {path.name for path in out.iterdir()} == {
        f"{name}.{end}" for name in ("typical", "parts", "steps") for end in ("csv", "png")
    }
    assert all(path.read_bytes().startswith(PNG) for path in out.glob("*.png"))
    parts = rows(out / "parts.csv")
    assert len(parts) == sum(len(table["points"]) for table in data["operators"].values())
    assert all(float(row["roofline_s"]) > 0 for row in parts)
    # A copy costs what was measured, without the 0.02 ms that every step takes besides.
    whole = next(line for line in result.output.splitlines() if "measured model" in line)
    copy_s = next(float(row["measured_s"]) for row in parts if row["part"] == "copy")
    assert float(whole.split()[-1]) == pytest.approx(1e3 * copy_s, rel=0.02)
    table = rows(out / "steps.csv")
    assert len(table) == len(data["fit_steps"]) + 9
    assert [float(row["measured_s"]) for row in table[-9:]] == pytest.approx(
        [step["median_s"] for step in data["fit_steps"][:9]], rel=1e-6
    )
    for said in ("measured model", "roofline", "held-out steps", "steps of the fit", "prefill of"):
        assert said in result.output


def test_without_a_profile_typical_steps_are_shown(tmp_path):
    """Decode of one at 4k on an L4 streams 4.2 B weights of 2 B: 28 ms at 300 GB/s, or more."""
    out = tmp_path / "out"
    result = RUNNER.invoke(
        app, ["cost", "show", "--model", "qwen3.5-4b", "--gpu", "l4", "--out", str(out)]
    )
    assert result.exit_code == 0
    assert {path.name for path in out.iterdir()} == {"typical.csv", "typical.png"}
    seconds = {}
    for row in rows(out / "typical.csv"):
        seconds[row["step"]] = seconds.get(row["step"], 0.0) + float(row["roofline_s"])
    weights_s = get_model("qwen3.5-4b").weight_bytes / 300e9
    assert weights_s < seconds["decode of 1 at 4k"] < 2 * weights_s
    assert seconds["copy of one state"] < seconds["decode of 1 at 4k"]
    assert list(seconds)[-1] == "copy of one state"


def test_a_card_of_unknown_peaks_is_shown_by_its_profile_alone(tmp_path):
    profile, out = small_profile(tmp_path), tmp_path / "out"
    result = RUNNER.invoke(
        app, ["cost", "show", "--model", "qwen3.5-0.8b", "--profile", str(profile),
              "--out", str(out)],
    )  # fmt: skip
    assert result.exit_code == 0
    assert {path.name for path in out.iterdir()} == {
        "parts.csv", "parts.png", "steps.csv", "steps.png",
    }  # fmt: skip
    assert {row["roofline_s"] for row in rows(out / "parts.csv")} == {""}


def test_the_link_of_a_card_of_ones_own_goes_with_a_profile_of_ranks():
    """200 GB/s wholly used and 1 us; without a link, ranks cannot be priced."""
    path = shipped_profiles()["h200", "qwen3-next-80b-a3b", 4]
    model = get_model("qwen3-next-80b-a3b")
    gpu = {"name": "ours", "link_bytes_per_s": 2e11,
           "efficiency": {"link": 1, "allreduce_latency_s": 1e-6}}  # fmt: skip
    subject = make_subject(gpu, model, 4, path)
    assert subject.measured is not None
    assert subject.measured.allreduce is not None
    assert subject.measured.allreduce.link_bytes_per_s == 2e11
    assert subject.measured.allreduce.latency_s == 1e-6
    with pytest.raises(UserError, match="needed for tp 4") as caught:
        make_subject("ours", model, 4, path)
    assert caught.value.place == "gpu.link_bytes_per_s"


def experiment(folder: Path, text: str) -> Path:
    path = folder / "e.yaml"
    path.write_text(
        "name: e\ntrace: {format: generate, generator: chat, num_sessions: 3}\n"
        "cache: {memory: 1GiB, state_fraction: 0.5}\nplots: []\n" + text
    )
    return path


def test_an_experiment_is_shown_for_every_gpu_and_model_in_it(tmp_path):
    path = experiment(
        tmp_path,
        "mode: timed\nmodel: qwen3.5-4b\ngpu: h200\n"
        "sweep: {gpu: [h100, {name: h200, cost: measured}], model: [qwen3.5-0.8b],"
        " cache.page_size: [16, 32]}\n",
    )
    found = find_subjects(Wish(path))
    assert [(x.name, x.measured is not None) for x in found] == [
        ("h100-qwen3.5-0.8b", False), ("h200-qwen3.5-0.8b", True),
    ]  # fmt: skip
    [other] = find_subjects(Wish(path, overrides=("sweep={}", "gpu=l40s", "tp=2")))
    assert (other.name, other.model.tp) == ("l40s-qwen3.5-4b-tp2", 2)
    out = tmp_path / "out"
    assert RUNNER.invoke(app, ["cost", "show", str(path), "--out", str(out)]).exit_code == 0
    assert {folder.name for folder in out.iterdir()} == {subject.name for subject in found}


@pytest.mark.parametrize(
    ("arguments", "place", "says"),
    [
        ([], "--model", "allowed: a model, or an experiment file"),
        (["--model", "qwen3.5-0.8b"], "--gpu", "allowed: h200, .* rates, or a --profile"),
        (["--model", "x", "--gpu", "h200"], "model", "unknown name 'x'"),
        (["--model", "qwen3.5-0.8b", "--gpu", "h2000"], "--gpu", "did you mean 'h200'"),
        (["--model", "qwen3.5-0.8b", "--gpu", "infinite"], "--gpu", "takes no time"),
        (["--model", "qwen3.5-0.8b", "--gpu", "[1, 2]"], "--gpu", r"unknown name \[1, 2\]"),
        (["--model", "qwen3.5-0.8b", "--gpu", "{a"], "--gpu", "neither a name nor a YAML"),
        (["--model", "qwen3.5-0.8b", "--gpu", "h200", "--tp", "0"], "tp", "0 is not a number"),
        (["--model", "qwen3.5-0.8b", "--gpu", "h200", "--tp", "3"], "tp", "does not divide"),
        (["--model", "qwen3.5-0.8b", "--gpu", "h200", "--profile", "no.json"], "no.json",
         "cannot be read"),
        (["--model", "qwen3.5-0.8b", "--gpu", "{name: h200, profile: ''}"], ".", "cannot be read"),
        (["--model", "qwen3.5-0.8b", "--gpu", "h200", "--steps", "no.json"], "--steps",
         "cannot be read: No such file"),
        (["--model", "qwen3.5-0.8b", "--gpu", "h200", "--set", "tp=2"], "--set",
         "no meaning without an experiment"),
        (["e.yaml", "--model", "qwen3.5-0.8b"], "--model", "allowed: --set model="),
        (["e.yaml"], "gpu", "allowed: --set gpu=h200"),
        (["--model", "qwen3.5-4b", "--gpu", "{name: h200, cost: measured}"], "--gpu.cost",
         "no profile of qwen3.5-4b"),
        (["--model", "qwen3.5-4b", "--gpu", "{name: h200, cost: fast}"], "--gpu.cost", "'fast'"),
    ],
)  # fmt: skip
def test_wrong_options_are_refused(tmp_path, monkeypatch, arguments, place, says):
    monkeypatch.chdir(tmp_path)
    experiment(tmp_path, "model: qwen3.5-0.8b\n")
    with pytest.raises(UserError, match=says) as caught:
        RUNNER.invoke(app, ["cost", "show", *arguments], catch_exceptions=False)
    assert caught.value.place == place
    assert [path.name for path in tmp_path.iterdir()] == ["e.yaml"]


@pytest.mark.parametrize(
    ("text", "says"),
    [('{"model": "qwen3.5-0.8b", "steps": [{}]}', "chunks: Field required"),
     ('{"model": "qwen3.5-0.8b", "steps": [{"chunks": [], "num_decodes": 0, '
      '"decode_context_tokens": 0, "median_s": 1}]}', "a step without tokens"),
     ("{", "is not JSON"), ("[]", "holds no steps"), ('{"steps": []}', "holds no steps"),
     ('{"model": "qwen3.5-4b", "steps": [{}]}', "is of qwen3.5-4b, tp 1, not of qwen3.5-0.8b")],
)  # fmt: skip
def test_files_without_fitting_steps_are_refused(tmp_path, text, says):
    path = tmp_path / "steps.json"
    path.write_text(text)
    with pytest.raises(UserError, match=says):
        RUNNER.invoke(
            app, ["cost", "show", "--model", "qwen3.5-0.8b", "--gpu", "h200", "--steps", str(path),
                  "--out", str(tmp_path / "out")],
            catch_exceptions=False,
        )  # fmt: skip
    assert not (tmp_path / "out").exists()


def test_the_list_names_every_gpu_and_profile():
    output = RUNNER.invoke(app, ["cost", "list"]).output
    assert all(name in output for name in GPUS)
    for _, data in shipped():
        assert data["model"] in output
        assert data["machine"]["date"] in output


def test_subjects_have_distinct_names_for_their_folders():
    names = [Subject("h200", MODEL.for_rank(tp), None).name for tp in (1, 2, 4)]
    assert names == ["h200-qwen3.5-0.8b", "h200-qwen3.5-0.8b-tp2", "h200-qwen3.5-0.8b-tp4"]
    assert Subject("../my card", MODEL, None).name == "..-my-card-qwen3.5-0.8b"
