"""Sizes of networks other than parameters: outputs of a layer, floating-point operations, and the time of a training step."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import lru_cache
from statistics import mean, median
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

import boolit
from boolit.errors import UserError
from boolit.lab.common.devices import torch_threads
from boolit.lab.datasets.base import Dataset, Description, Split
from boolit.lab.models import Family
from boolit.lab.runs import RunConfig
from boolit.lab.training import Job, Recipe, Training
from boolit.lab.training.train import new_training
from boolit.nn import Activation
from boolit.nn.width import round_width, width_for_budget

REFERENCE = "relu"  # steps are timed in units of this activation's
RUNS = 10  # stacked in a measurement, as the seeds of a study are
STEPS, ROUNDS = 8, 9  # steps of a round, and rounds; the activation and the reference take turns
TRIES, CLOSE = 10, 0.025  # widths that are measured, unless one is that close to the target


def widths_for_outputs(model: Family, outputs: int, depth: int, activation: Activation) -> list[int]:
    """Return the widths at which every hidden layer has ``outputs`` features after its activation."""
    return _widths(model, round_width(outputs / activation.feature_factor, activation.width_multiple), depth, activation)


def widths_for_flops(model: Family, budget: int, depth: int, data: Description, activation: Activation) -> list[int]:
    """Return the widths whose forward pass on one sample needs nearly ``budget`` operations."""

    def count(size: int) -> int:
        return flops(model, data.inputs, data.outputs, tuple(_widths(model, size, depth, activation)), activation.spec)

    return _widths(model, width_for_budget(count, budget), depth, activation)


def _widths(model: Family, size: int, depth: int, activation: Activation) -> list[int]:
    return [round_width(width, activation.width_multiple) for width in model.scaled_widths(size, depth, activation)]


@lru_cache(maxsize=4096)
def flops(model: Family, inputs: tuple[int, ...], outputs: int, widths: tuple[int, ...], spec: str) -> int:
    """Return the operations of matrix products and convolutions in a forward pass on one sample, as torch counts them."""
    with torch.random.fork_rng(devices=[]), torch.device("meta"), torch.no_grad(), FlopCounterMode(display=False) as counter:
        model.network(inputs, outputs, widths, spec).eval()(torch.zeros(1, *inputs))
    return int(counter.get_total_flops())


def sizes(runs: Sequence[RunConfig], count_flops: bool = False, timer: StepTimer | None = None) -> list[dict[str, Any]]:
    """Return the sizes of networks, one entry per run, with flops and measured step times if they are asked for."""
    entries = []
    for run in runs:
        widths = "-".join(map(str, run.widths))
        entry: dict[str, Any] = {"activation": run.activation, "widths": widths, "parameters": run.parameters}
        if run.widths:
            entry["outputs"] = boolit.activation(run.activation).out_features(run.widths[-1])
        if count_flops:
            entry["flops"] = flops(run.model, run.inputs, run.outputs, run.widths, run.activation)
        if timer:
            entry["step_time"] = round(timer.ratio(run.activation, run.widths), 3)
        entries.append(entry)
    return entries


class StepTimer:
    """Times training steps of a model on random samples, as multiples of ReLU's at a parameter budget.

    Times are processor times of one thread, and the activation takes turns with the reference, so that other programs
    disturb the ratio little. `RUNS` networks train stacked where the family allows it.
    """

    def __init__(self, model: Family, data: Description, recipe: Recipe, params: int, depth: int) -> None:
        self.model, self.data, self.params, self.depth = model, data, params, depth
        plain: dict[str, Any] = {"epochs": 10**6, "patience": None, "prelude": 0, "augmentation": None, "metrics": []}
        self.recipe = recipe.model_copy(update=plain | {"learning_rate": 1e-3})
        ends = (data.inputs, data.outputs)
        self._reference = self._training(REFERENCE, model.widths_for_budget(params, depth, *ends, boolit.activation(REFERENCE)))

    def ratio(self, spec: str, widths: Sequence[int]) -> float:
        """Return the time of a step of the network as a multiple of the reference's."""
        measured = self._training(spec, widths)
        with torch_threads(1):  # threads that wait for each other also take processor time
            return median(_seconds(measured) / _seconds(self._reference) for _ in range(ROUNDS))

    def solve(self, spec: str, target: float) -> tuple[int, float]:
        """Return the width whose step takes nearly ``target`` times as long as the reference's, and its measured multiple."""
        gate = boolit.activation(spec)
        width = self.model.widths_for_budget(self.params, self.depth, self.data.inputs, self.data.outputs, gate)[0]
        tried: dict[int, float] = {}
        while width not in tried and len(tried) < TRIES:
            widths = self.model.scaled_widths(width, self.depth, gate)
            tried[width] = mean(self.ratio(spec, widths) for _ in range(2))
            best = min(tried, key=lambda size: abs(tried[size] / target - 1))
            if abs(tried[best] / target - 1) < CLOSE:
                break
            below = max((size for size in tried if tried[size] < target), default=0)
            above = min((size for size in tried if tried[size] > target), default=0)
            if below and above > below:
                nominal = below + (above - below) * (target - tried[below]) / (tried[above] - tried[below])
            else:
                nominal = best * min(2.0, max(0.5, target / tried[best])) ** 1.5
            width = round_width(nominal, gate.width_multiple)
        if tried[best] > 1.25 * target:
            rule = f"takes at least {tried[best]:.2f} times as long as {REFERENCE}'s"
            raise UserError(f"a step of {spec} {rule}; raise sweep.step_time")
        return best, tried[best]

    def _training(self, spec: str, widths: Sequence[int]) -> Training:
        rows, data = ROUNDS * self.recipe.batch, self.data
        draw = torch.Generator().manual_seed(0)
        y = torch.randint(max(2, data.outputs), (rows,), generator=draw)
        y = y if data.task == "classes" else (y % 2).float().unsqueeze(1).expand(-1, data.outputs)
        dataset = Dataset({"train": Split(torch.randn(rows, *data.inputs, generator=draw), y)}, data.task, data.outputs)
        runs = RUNS if self.model.stackable else 1
        job = Job(dataset, self.model, spec, tuple(widths), (self.recipe,) * runs, tuple(range(runs)))
        training = new_training(job)
        training.begin_epoch()
        return training


def _seconds(training: Training) -> float:
    training.step()
    began = time.process_time()
    for _ in range(STEPS):
        training.step()
    return time.process_time() - began
