"""For every test: hypothesis without a deadline (the machine may be shared), the same random numbers, empty registries."""

import gc
import sys

import pytest
import torch
from hypothesis import settings

settings.register_profile("boolit", deadline=None)
settings.load_profile("boolit")


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


REGISTRIES = (
    ("boolit.nn.specs", None, "_REGISTERED"),
    ("boolit.lab.reports.tables", None, "_REGISTERED"),
    ("boolit.lab.datasets", "DATASETS", "registered"),
    ("boolit.lab.models", "MODELS", "registered"),
)


@pytest.fixture(autouse=True)
def _own_registries(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test begins with boolit's own activations, datasets, models and tables; what it registers is forgotten after it."""
    for module, owner, name in REGISTRIES:
        if module in sys.modules:
            loaded = sys.modules[module]
            monkeypatch.setattr(getattr(loaded, owner) if owner else loaded, name, {})


def pytest_collection_finish() -> None:
    """All modules and all tests stay until the end: without them a full garbage collection takes a tenth of the time."""
    gc.freeze()


@pytest.fixture(scope="module")
def _small_heap() -> None:
    """The same for what earlier tests have left behind, where the code under test collects garbage itself."""
    gc.collect()
    gc.freeze()
