"""Fixtures for tests of model families."""

import pytest


@pytest.fixture(autouse=True)
def _one_thread(one_thread: None) -> None:
    """Share the machine with other tests."""
