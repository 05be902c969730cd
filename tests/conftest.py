"""For every test: hypothesis without a deadline (the machine may be shared), and the same random numbers each time."""

import pytest
import torch
from hypothesis import settings

settings.register_profile("boolit", deadline=None)
settings.load_profile("boolit")


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)
