"""Kernel tests run on the GPU where there is one, else in Triton's interpreter on the CPU."""

import os

import numpy as np
import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    # Must be set before triton is first imported.
    os.environ["TRITON_INTERPRET"] = "1"
pytest.importorskip("triton")


@pytest.fixture(scope="session")
def device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave GPU-only tests out where there is no GPU."""
    if torch.cuda.is_available():
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="needs a CUDA GPU"))


@pytest.fixture(scope="session")
def half_dtype(device: str) -> "torch.dtype":
    """The 16-bit type of matrix products: the interpreter multiplies float16 but not bfloat16."""
    return torch.bfloat16 if device == "cuda" else torch.float16


@pytest.fixture
def filler_rows():
    """Rows that only fill a step up hold what their memory held; the interpreter warns of it."""
    with np.errstate(invalid="ignore", over="ignore"):
        yield
