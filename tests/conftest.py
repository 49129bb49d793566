"""Fixtures shared by all tests."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

# Shared 2-core machines are noisy: a deadline would fail tests for reasons outside the code.
# Continuous integration judges a change, so it tries the same examples each time; runs by hand
# look for new ones.
settings.register_profile("default", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("default")

REPO_DIR = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def repo_dir() -> Path:
    return REPO_DIR


@pytest.fixture(scope="session")
def shared_dir() -> Path:
    """The folder of reference data beside the checkout; tests that need it skip without it."""
    path = REPO_DIR.parent / "shared"
    if not path.is_dir():
        pytest.skip("reference data (../shared) is not beside this checkout")
    return path
