"""The lab: studies that compare activations, and what you add to them. Every name is imported when it is first used.

Example:
    >>> from boolit.lab import load_study, plan
    >>> planned = plan(load_study("parity"), seeds=3)
    >>> planned.study.title, len(planned.runs)
    ('Parity of four logits with a network of 4 and 2 neurons', 24)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from boolit.lab.datasets import register as register_dataset
    from boolit.lab.datasets.base import Dataset, Source, Split
    from boolit.lab.execute import execute as execute_plan
    from boolit.lab.execute import run_study
    from boolit.lab.models import Family
    from boolit.lab.models import register as register_model
    from boolit.lab.reports.report import write_report
    from boolit.lab.reports.tables import register as register_table
    from boolit.lab.results.statistics import compare as compare_runs
    from boolit.lab.results.statistics import verdict
    from boolit.lab.results.store import Store
    from boolit.lab.runs import Metric, Result, RunConfig
    from boolit.lab.studies import load_study, plan
    from boolit.lab.training.recipe import register_loss, register_metric, register_optimizer, register_schedule

__all__ = ["Dataset", "Family", "Metric", "Result", "RunConfig", "Source", "Split", "Store"]
__all__ += ["compare_runs", "execute_plan", "load_study", "plan", "run_study", "verdict", "write_report"]
__all__ += ["register_dataset", "register_loss", "register_metric", "register_model"]
__all__ += ["register_optimizer", "register_schedule", "register_table"]
_MODULES = {  # `name=attribute` where a subpackage has the name of the attribute
    "datasets": "Dataset Source Split register_dataset=register",
    "execute": "execute_plan=execute run_study",
    "models": "Family register_model=register",
    "reports.report": "write_report",
    "reports.tables": "register_table=register",
    "results.statistics": "compare_runs=compare verdict",
    "results.store": "Store",
    "runs": "Metric Result RunConfig",
    "studies": "load_study plan",
    "training.recipe": "register_loss register_metric register_optimizer register_schedule",
}
_PLACES = {
    entry.partition("=")[0]: (module, entry.rpartition("=")[2]) for module in _MODULES for entry in _MODULES[module].split()
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _PLACES[name]
    try:
        value = getattr(import_module(f"{__name__}.{module}"), attribute)
    except ModuleNotFoundError as error:
        raise ImportError(f"boolit.lab needs {error.name}: pip install 'boolit[lab]'") from error
    globals()[name] = value
    return value
