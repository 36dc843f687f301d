"""What every test may ask for."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from hypothesis import settings

# Programs that tests start and interrupt would ignore it, too, where the tests were started in the background.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Two cores share the suite: how long one example takes says nothing.
settings.register_profile("house", deadline=None)
settings.load_profile("house")

SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real recordings beside the checkout; tests that need it are skipped without it."""
    if not SHARED_DATA.is_dir():
        pytest.skip(f"the real recordings are not at {SHARED_DATA}")
    return SHARED_DATA
