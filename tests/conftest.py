"""Settings of all tests: no deadlines (the machine may be shared), seeded random numbers, clean registries and signals."""

import gc
import os
import signal
import sys
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import pytest
import torch
from hypothesis import settings

# These run in separate processes: one with Triton's interpreter, one that registers a stand-in device at its start.
collect_ignore = [] if os.environ.get("TRITON_INTERPRET") else ["logic/interpreted_triton.py"]
collect_ignore += [] if os.environ.get("BOOLIT_TEST_STANDIN") else ["devices"]

# A background job of a script may inherit ignored signals, and so would every process that a test starts.
for number, default in {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}.items():
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, default)

# Tests marked `check` need these packages, which `make test` does not install.
NEEDED = {
    "citizenship/test_tracers.py": "onnxruntime",
    "lab/execute/test_cluster.py": "distributed",
    "nn/test_convert_families.py": "transformers",
    "browser": "playwright",
}
collect_ignore += [path for path, package in NEEDED.items() if find_spec(package) is None]

settings.register_profile("boolit", deadline=None)
settings.load_profile("boolit")


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


REGISTRIES = (
    ("boolit.nn.specs", None, "_REGISTERED"),
    ("boolit.lab.reports.tables", "TABLES", "registered"),
    ("boolit.lab.datasets", "DATASETS", "registered"),
    ("boolit.lab.models", "MODELS", "registered"),
    *(("boolit.lab.training.recipe", name, "registered") for name in ("OPTIMIZERS", "SCHEDULES", "LOSSES", "METRICS")),
)


@pytest.fixture(autouse=True)
def _empty_registries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start every test with empty registries of plug-ins, and forget what it registers."""
    for module, owner, name in REGISTRIES:
        if module in sys.modules:
            loaded = sys.modules[module]
            monkeypatch.setattr(getattr(loaded, owner) if owner else loaded, name, {})


def pytest_collection_finish() -> None:
    """Exclude all modules and tests from garbage collection, which then takes a tenth of the time."""
    gc.freeze()


@pytest.fixture(scope="session")
def make_result() -> Callable[..., Any]:
    """Return a function that makes the result of a run that was never trained."""
    from boolit.lab.runs import Metric, Result, RunConfig

    def make(activation: str = "relu", seed: int = 0, value: float = 0.5, **changes: Any) -> Result:
        state, history = changes.pop("state", "finished"), changes.pop("history", {})
        metrics = changes.pop("metrics", {"test_accuracy": value if state == "finished" else float("nan")})
        seconds, environment = changes.pop("seconds", 0.5), changes.pop("environment", {"boolit": "1.0", "device": "cpu"})
        sections = {"data": {"name": "parity"}, "model": {"name": "mlp"}, "training": {"epochs": 3, "batch": 32}}
        network = {"inputs": (4,), "outputs": 1, "widths": (4, 2), "parameters": 36}
        labels = {"study": "made-up", "profile": "quick", "metric": Metric(name="accuracy")}
        entries = {"activation": activation, "seed": seed, **sections, **network, **labels, **changes}
        return Result(RunConfig.model_validate(entries), state, metrics, history, seconds, environment)

    return make


@pytest.fixture(scope="module")
def _small_heap() -> None:
    """Exclude what earlier tests left behind, too, because the code under test collects garbage."""
    gc.collect()
    gc.freeze()
