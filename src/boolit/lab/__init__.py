"""The lab: studies of activations from Python, comparisons on your own table or images, and what you add to them.

The names here are the lab's public face; everything else in it may change. Each is imported when it is first used.

Example:
    >>> from boolit.lab import load_study, plan
    >>> planned = plan(load_study("parity"), seeds=3)
    >>> planned.study.title, len(planned.runs)
    ('Parity of four logits with a network of 4 and 2 neurons', 24)
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from boolit.errors import UserError

if TYPE_CHECKING:
    import torch

    from boolit.lab.compare.config import CompareConfig, ImageCompareConfig
    from boolit.lab.compare.images import ImageCompareJob, ImageCompareResult
    from boolit.lab.compare.job import CompareJob, CompareResult
    from boolit.lab.datasets import Dataset, Source, Split
    from boolit.lab.datasets import register as register_dataset
    from boolit.lab.execute import ExecutionSummary
    from boolit.lab.execute import execute as execute_plan
    from boolit.lab.execute.cluster import Cluster
    from boolit.lab.models import Family, Stacked
    from boolit.lab.models import register as register_model
    from boolit.lab.paper import PrintedCell
    from boolit.lab.paper import table as paper_table
    from boolit.lab.paper import tables as paper_tables
    from boolit.lab.reports.figures import FIGURES
    from boolit.lab.reports.figures import draw as draw_figures
    from boolit.lab.reports.page import Report, report_study
    from boolit.lab.reports.tables import register as register_table
    from boolit.lab.reports.tables.model import ResultCell, ResultRow, ResultTable
    from boolit.lab.results.scores import Score, ScoreSummary, scores
    from boolit.lab.results.statistics import Comparison, ComparisonMethod
    from boolit.lab.results.statistics import compare as compare_scores
    from boolit.lab.results.store import Store
    from boolit.lab.results.verdicts import verdict
    from boolit.lab.runs import Metric, Record, Run, RunConfig
    from boolit.lab.studies import Plan, StudyFile, list_studies, load_study, plan

__all__ = [
    "FIGURES",
    "Cluster",
    "CompareConfig",
    "CompareJob",
    "CompareResult",
    "Comparison",
    "ComparisonMethod",
    "Dataset",
    "ExecutionSummary",
    "Family",
    "ImageCompareConfig",
    "ImageCompareJob",
    "ImageCompareResult",
    "Metric",
    "Plan",
    "PrintedCell",
    "Record",
    "Report",
    "ResultCell",
    "ResultRow",
    "ResultTable",
    "Run",
    "RunConfig",
    "Score",
    "ScoreSummary",
    "Source",
    "Split",
    "Stacked",
    "Store",
    "StudyFile",
    "UserError",
    "compare_scores",
    "draw_figures",
    "execute_plan",
    "list_studies",
    "load_study",
    "paper_table",
    "paper_tables",
    "plan",
    "register_dataset",
    "register_model",
    "register_table",
    "report_study",
    "run_study",
    "scores",
    "verdict",
]

# Where each is; `name=own` where the public name is another than its own, as rooms of the lab have that name already.
_HOMES = {
    "compare.config": "CompareConfig ImageCompareConfig",
    "compare.images": "ImageCompareJob ImageCompareResult",
    "compare.job": "CompareJob CompareResult",
    "datasets": "Dataset Source Split register_dataset=register",
    "execute": "ExecutionSummary execute_plan=execute",
    "execute.cluster": "Cluster",
    "models": "Family Stacked register_model=register",
    "paper": "PrintedCell paper_table=table paper_tables=tables",
    "reports.figures": "FIGURES draw_figures=draw",
    "reports.page": "Report report_study",
    "reports.tables": "register_table=register",
    "reports.tables.model": "ResultCell ResultRow ResultTable",
    "results.scores": "Score ScoreSummary scores",
    "results.statistics": "Comparison ComparisonMethod compare_scores=compare",
    "results.store": "Store",
    "results.verdicts": "verdict",
    "runs": "Metric Record Run RunConfig",
    "studies": "Plan StudyFile list_studies load_study plan",
}


def __getattr__(name: str) -> Any:
    """Imports a public name when it is first used, so that a plugin that registers a dataset does not wait for the rest."""
    for home, names in _HOMES.items():
        for entry in names.split():
            public, _, own = entry.partition("=")
            if public == name:
                globals()[name] = getattr(_import(home), own or public)
                return globals()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _import(home: str) -> ModuleType:
    try:
        return import_module(f"{__name__}.{home}")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "boolit":
            raise
        extra = "cluster" if error.name == "distributed" else "lab"
        raise ImportError(f"boolit.lab needs {error.name}: pip install 'boolit[{extra}]'") from None


def __dir__() -> list[str]:
    return __all__


def run_study(
    study: str | Path,
    folder: str | Path,
    profile: str | None = None,
    seeds: int | None = None,
    sets: Sequence[str] = (),
    method: ComparisonMethod | None = None,
    progress: bool | None = None,
    device: str | torch.device | None = None,
) -> Report:
    """Trains a study and writes its report, as ``boolit run`` does; what is in the folder already is not trained again.

    Args:
        study: the name of one that ships with boolit, or a TOML file.
        folder: where runs and report are kept.
        profile: one of the study's; ``quick`` if it has it, unless given.
        seeds: how many, instead of the study's.
        sets: changes such as ``"training.epochs=20"``.
        method: how activations are compared.
        progress: whether to show it; where there is a terminal, unless given.
        device: where to train, such as ``cpu`` or ``cuda:1``; a CUDA GPU if there is one, unless given.

    Returns:
        The `Report`; with ``unfinished`` instead of a verdict if it was stopped by Ctrl-C or another process has some runs.

    Raises:
        UserError: for anything in the study, or given here, that makes no sense; the message names the line or the option.

    Example:
        >>> import tempfile
        >>> small = ["training.epochs=1", "sweep.activation=['relu', 'xnor_ail']"]
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     report = run_study("xor", folder, seeds=2, sets=small, progress=False)
        ...     report.page.name, sorted(row.activation for row in report.tables[0].rows)
        ('report.html', ['relu', 'xnor_ail'])
    """
    from boolit.errors import user_input
    from boolit.lab.common.devices import use_device
    from boolit.lab.datasets import load
    from boolit.lab.execute import execute
    from boolit.lab.reports.page import report_study
    from boolit.lab.results.store import Store
    from boolit.lab.studies import check_memory, load_study, plan

    with use_device(device):
        planned = plan(load_study(study), profile, seeds, sets)
        check_memory(planned)
        with user_input():
            load(planned.study.data)  # before anything is written
        with Store(Path(folder)) as store:
            execute(planned, store, progress)
            return report_study(planned, store, method)
