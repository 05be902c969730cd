"""Execution of plans, on this machine or on a Dask cluster."""

from boolit.lab.execute.local import ExecutionSummary, execute, run_study, train_configs

__all__ = ["ExecutionSummary", "execute", "run_study", "train_configs"]
