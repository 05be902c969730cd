"""The stand-in device for these tests, one thread, and formulas on the CPU as well: kernels are the CPU's alone."""

import sys
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest
import torch

STANDIN = Path(__file__).with_name("standin_device.py")
collect_ignore = [STANDIN.name]  # looking for examples would register the device for all tests


@pytest.fixture(scope="session")
def standin() -> ModuleType:
    """The device's module, with what it counts; loaded once, as a device is registered once in a process."""
    if STANDIN.stem not in sys.modules:
        spec = spec_from_file_location(STANDIN.stem, STANDIN)
        assert spec is not None
        assert spec.loader is not None
        sys.modules[STANDIN.stem] = module_from_spec(spec)
        spec.loader.exec_module(sys.modules[STANDIN.stem])
    return sys.modules[STANDIN.stem]


@pytest.fixture(autouse=True)
def _formulas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("boolit.logic.dispatch.is_ordinary", lambda _: False)  # the reference implementation
    monkeypatch.setattr("boolit.lab.kernels.LIBRARY", None)
    monkeypatch.setattr("boolit.lab.training.single.FUSED", ())


@pytest.fixture(autouse=True)
def _one_thread(standin: ModuleType) -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
    standin.transfers.clear()
