"""For every test: hypothesis without a deadline (the machine may be shared), and the same random numbers each time."""

import gc

import pytest
import torch
from hypothesis import settings

settings.register_profile("boolit", deadline=None)
settings.load_profile("boolit")


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


def pytest_collection_finish() -> None:
    """All modules and all tests stay until the end: without them a full garbage collection takes a tenth of the time."""
    gc.freeze()


@pytest.fixture(scope="module")
def _small_heap() -> None:
    """The same for what earlier tests have left behind, where the code under test collects garbage itself."""
    gc.collect()
    gc.freeze()
