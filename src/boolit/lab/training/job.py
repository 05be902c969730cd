"""What one stacked training needs, read from the configurations of its runs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

import boolit
from boolit.errors import UserError
from boolit.lab.common.devices import is_resident
from boolit.lab.datasets import Dataset, Description, Resample, load, source
from boolit.lab.models import Family, Stacked, family
from boolit.lab.runs import RunConfig
from boolit.lab.training import distributed
from boolit.lab.training.metrics import LOSS_OF_TASK
from boolit.lab.training.recipe import PER_RUN, Loss, Recipe


def set_initial_values(model: Stacked, initial_values: Mapping[str, Tensor]) -> None:
    """Copies values into the parameter or buffer of their name, the same for every run.

    Shape: each as in the network's state, without the axis of runs.
    """
    state = model.state_dict()
    for name, values in initial_values.items():
        if name not in state:
            rule = f"a network that has {', '.join(sorted(state))}"
            raise UserError(f"the data gives networks values for {name!r}, not known to {rule}; choose a model for this data")
        own = state[name]
        if own.shape[1:] != values.shape:
            shapes = f"{tuple(values.shape)}, but the model's is {tuple(own.shape[1:])}"
            raise UserError(f"the data's {name!r} has the shape {shapes}; change the model's options to the data's sizes")
        with torch.no_grad():
            own.copy_(values.expand_as(own))


FLOAT_BYTES = 4
COPIES_OF_PARAMETERS = 7  # values, gradients twice (by layer and flat), two moments, scratch, and a checkpoint's copy


@dataclass(frozen=True)
class Job:
    """Runs of one shape: the same data, network and recipe but for the numbers of `PER_RUN`.

    ``resamples`` are the rows of each run, where runs have their own. A ``trial`` only chooses: it never reads a test row.
    """

    dataset: Dataset
    family: Family
    activation: str
    widths: tuple[int, ...]
    recipes: tuple[Recipe, ...]
    seeds: tuple[int, ...]
    resamples: tuple[Resample, ...] = ()
    trial: bool = False

    @staticmethod
    def of(configs: Sequence[RunConfig]) -> Job:
        """The job of runs whose configurations differ in seed, split and per-run numbers only."""
        first = configs[0]
        recipes = tuple(Recipe.model_validate(config.training) for config in configs)
        if any(recipe.shape() != recipes[0].shape() for recipe in recipes):
            raise ValueError("runs of one cohort must share their recipe but for the per-run numbers; plan them apart")
        dataset = load(source(first.data))
        splits = [config.split for config in configs if config.split is not None]
        if splits and dataset.resample is None:
            raise ValueError(f"a run is on split {splits[0]}, but its data has one split only; leave split out")
        return Job(
            dataset=dataset,
            family=family(first.model),
            activation=first.activation,
            widths=tuple(first.width),
            recipes=recipes,
            seeds=tuple(config.seed for config in configs),
            resamples=tuple(dataset.resample(split) for split in splits) if dataset.resample else (),
            trial=first.trial,
        )

    @property
    def recipe(self) -> Recipe:
        """What all runs share."""
        return self.recipes[0]

    @property
    def runs(self) -> int:
        """How many there are."""
        return len(self.seeds)

    @property
    def loss(self) -> Loss:
        """The recipe's loss, or the task's own."""
        return self.recipe.loss or LOSS_OF_TASK[self.dataset.task]

    @property
    def single_network(self) -> bool:
        """Whether its networks are trained one at a time."""
        return needs_single_network(self.family, self.recipe)

    @property
    def eval_splits(self) -> list[str]:
        """The splits that runs are assessed on after every epoch."""
        return [name for name in self.dataset.splits if name != "train" and not (self.trial and name == "test")]

    @property
    def unit(self) -> Tensor:
        """What 1 in the targets of every run stands for.

        Shape: ``(runs,)``, float64.
        """
        own = [resample.target_scale for resample in self.resamples] or [1.0] * self.runs
        return self.dataset.unit * torch.tensor(own, dtype=torch.float64)

    @cached_property
    def batch(self) -> int:
        """The recipe's batch, or all samples where there are fewer."""
        return min(self.recipe.batch, len(self.dataset.splits["train"]))

    @cached_property
    def steps_per_epoch(self) -> int:
        """Whole batches of an epoch; which samples are left over differs from epoch to epoch."""
        return len(self.dataset.splits["train"]) // self.batch

    @property
    def widest(self) -> int:
        """The numbers of a sample where it has the most of them, its inputs included."""
        return max([math.prod(self.dataset.inputs), *self.widths])

    def on(self, device: torch.device) -> Job:
        """This job with the samples that it reads on a device, if they are small enough to stay there."""
        read = ["train", *self.eval_splits]
        stored = [self.dataset.splits[name] for name in read] if self.dataset.pool is None else [self.dataset.pool]
        if device.type == "cpu" or not is_resident(values for split in stored for values in (split.x, split.y)):
            return self
        if self.dataset.pool is not None:
            return replace(self, dataset=replace(self.dataset, pool=self.dataset.pool.to(device)))
        there = {name: self.dataset.splits[name].to(device) for name in read}
        return replace(self, dataset=replace(self.dataset, splits={**self.dataset.splits, **there}))

    def hyper(self) -> dict[str, Tensor]:
        """The per-run numbers.

        Shape: ``(runs,)`` each, float64.
        """
        return {name: torch.tensor([float(getattr(r, name)) for r in self.recipes], dtype=torch.float64) for name in PER_RUN}

    def subset(self, rows: Sequence[int]) -> Job:
        """The job of some of its runs."""
        return replace(
            self,
            recipes=tuple(self.recipes[row] for row in rows),
            seeds=tuple(self.seeds[row] for row in rows),
            resamples=tuple(self.resamples[row] for row in rows) if self.resamples else (),
        )

    def build(self) -> Stacked:
        """The networks, initialised."""
        model = self.family.build(self.runs, self.dataset.inputs, self.dataset.outputs, self.widths, self.activation)
        model.initialise(self.seeds)
        set_initial_values(model, self.dataset.initial_values)
        return model

    def bytes_per_run(self) -> int:
        """About how much memory a run takes while it is trained."""
        return bytes_per_run(self.dataset.description, self.family, self.activation, self.widths, self.recipe.batch)


def needs_single_network(model: Family, recipe: Recipe) -> bool:
    """Whether networks are trained one at a time: large ones, with a single network's options, or by many processes."""
    return model.trains_alone or recipe.single_network or distributed.size() > 1


def bytes_per_run(data: Description, model: Family, spec: str, widths: Sequence[int], batch: int) -> int:
    """About how much memory a run takes while it is trained."""
    shape = (data.inputs, data.outputs, widths, boolit.activation(spec))
    train = data.samples["train"]
    kept = 2 * model.saved_numel(*shape) * min(batch, train)
    others = [count for name, count in data.samples.items() if name != "train"]
    outputs = max(others, default=0) * data.outputs if data.extra_metrics else 0
    return FLOAT_BYTES * (COPIES_OF_PARAMETERS * model.parameters(*shape) + max(kept, outputs) + 2 * train)
