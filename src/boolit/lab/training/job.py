"""What one training needs: runs of one shape, the samples of their batches and evaluations, and an estimate of their memory."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import torch
from torch import Tensor, nn

import boolit
from boolit.errors import UserError
from boolit.lab.common.devices import is_resident
from boolit.lab.common.random import generator, keys
from boolit.lab.datasets.base import Dataset, Description, ExtraMetrics, Resample
from boolit.lab.models import Family, Stacked
from boolit.lab.training import distributed
from boolit.lab.training.recipe import AUGMENTATIONS, LOSS_OF_TASK, LOSSES, METRICS, OPTIMIZERS, PER_RUN, OfOutputs, Recipe

BLOCK_NUMEL = 2**20  # numbers of consecutive batches that are gathered together
FLOAT_BYTES = 4
COPIES_OF_PARAMETERS = 7  # values, gradients twice (by layer and flat), two moments, scratch, and a checkpoint's copy
SAMPLES = 2  # in the measurement of a network's memory; batch norm needs two


@dataclass(frozen=True)
class Job:
    """Runs of one shape: the same data, network and recipe except for the options in `PER_RUN`.

    Args:
        dataset: the samples.
        family: the model family.
        activation: spec of the activation.
        widths: pre-activation width of each hidden layer.
        recipes: one per run.
        seeds: one per run.
        resamples: every run's rows and scaling, for data that is split in several ways.
        trial: whether the runs only choose a hyper-parameter and never read test rows.
    """

    dataset: Dataset
    family: Family
    activation: str
    widths: tuple[int, ...]
    recipes: tuple[Recipe, ...]
    seeds: tuple[int, ...]
    resamples: tuple[Resample, ...] = ()
    trial: bool = False

    @property
    def recipe(self) -> Recipe:
        """The options that all runs share."""
        return self.recipes[0]

    @property
    def runs(self) -> int:
        """Number of runs."""
        return len(self.seeds)

    @cached_property
    def loss(self) -> OfOutputs:
        """The loss of the recipe or of the task."""
        return LOSSES.get(self.recipe.loss or LOSS_OF_TASK[self.dataset.task]).function

    @cached_property
    def extra_metrics(self) -> ExtraMetrics | None:
        """A function that computes the dataset's and the recipe's additional metrics from all outputs on a split, or None."""
        dataset, names = self.dataset, self.recipe.metrics
        if not names:
            return dataset.extra_metrics

        def measure(split: str, outputs: Tensor) -> dict[str, Tensor]:
            values = dict(dataset.extra_metrics(split, outputs)) if dataset.extra_metrics else {}
            targets = dataset.splits[split].y.to(outputs.device).expand(len(outputs), *dataset.splits[split].y.shape)
            if dataset.task == "regression":
                outputs, targets = dataset.unit * outputs, dataset.unit * targets
            for name in names:
                value = METRICS.get(name).function(outputs, targets)  # type: ignore[misc]  # the planner checks that it has one
                if value.shape != (len(outputs),):
                    shape = f"{tuple(value.shape)} instead of one value per run, ({len(outputs)},)"
                    raise UserError(f"the metric {name!r} returned values of shape {shape}")
                values[name] = value
            return values

        return measure

    @property
    def stacked(self) -> bool:
        """Whether all runs train as one stacked model."""
        return self.family.stackable and self.recipe.precision == "float32" and distributed.size() == 1

    @property
    def eval_splits(self) -> list[str]:
        """The splits that are evaluated after every epoch."""
        return [name for name in self.dataset.splits if name != "train" and not (self.trial and name == "test")]

    @property
    def unit(self) -> Tensor:
        """What 1 in the targets stands for, ``(runs,)`` in float64."""
        scales = [resample.target_scale for resample in self.resamples] or [1.0] * self.runs
        return self.dataset.unit * torch.tensor(scales, dtype=torch.float64)

    @cached_property
    def batch(self) -> int:
        """Samples per step: the recipe's, or all samples if there are fewer."""
        return min(self.recipe.batch, len(self.dataset.splits["train"]))

    @cached_property
    def steps_per_epoch(self) -> int:
        """Whole batches of an epoch. Which samples are left over differs between epochs."""
        return len(self.dataset.splits["train"]) // self.batch

    @property
    def widest(self) -> int:
        """The largest number of features per sample in the input or in any hidden layer."""
        return max([math.prod(self.dataset.inputs), *self.widths])

    def on(self, device: torch.device) -> Job:
        """Return the job with its samples on a device, if they are small enough to stay there."""
        read = ["train", *self.eval_splits]
        stored = [self.dataset.splits[name] for name in read] if self.dataset.pool is None else [self.dataset.pool]
        if device.type == "cpu" or not is_resident(values for split in stored for values in (split.x, split.y)):
            return self
        if self.dataset.pool is not None:
            return replace(self, dataset=replace(self.dataset, pool=self.dataset.pool.to(device)))
        moved = {name: self.dataset.splits[name].to(device) for name in read}
        return replace(self, dataset=replace(self.dataset, splits={**self.dataset.splits, **moved}))

    def hyper(self) -> dict[str, Tensor]:
        """Return the options in `PER_RUN` and those of a registered optimizer, ``(runs,)`` each in float64."""
        values = {name: [float(getattr(recipe, name)) for recipe in self.recipes] for name in PER_RUN}
        of_optimizer = {**OPTIMIZERS.get(self.recipe.optimizer).options, **self.recipe.options}
        values |= {name: [value] * self.runs for name, value in of_optimizer.items()}
        return {name: torch.tensor(each, dtype=torch.float64) for name, each in values.items()}

    def build_stacked(self, runs: Sequence[int]) -> Stacked:
        """Return the initialized networks of some runs as one model."""
        model = self.family.stacked(len(runs), self.dataset.inputs, self.dataset.outputs, self.widths, self.activation)
        model.initialize([self.seeds[run] for run in runs])
        for position in range(len(runs)):
            self._set_initial_values(model.weights(position))
        return model

    def build(self, run: int) -> nn.Module:
        """Return the initialized network of one run."""
        with torch.random.fork_rng(devices=[]):  # torch's layers draw weights that `initialize` replaces
            network = self.family.network(self.dataset.inputs, self.dataset.outputs, self.widths, self.activation)
        self.family.initialize(network, self.seeds[run])
        self._set_initial_values(network.state_dict())
        return network

    def _set_initial_values(self, state: Mapping[str, Tensor]) -> None:
        for name, values in self.dataset.initial_values.items():
            if name not in state or state[name].shape != values.shape:
                shape = tuple(state[name].shape) if name in state else "no such tensor"
                rule = f"has the shape {tuple(values.shape)}, but the network has {shape}"
                raise UserError(f"the data's initial value {name!r} {rule}; choose a model and sizes that fit the data")
            state[name].copy_(values)


class Batches:
    """The batches of every run. Each depends on the run's seed and the step only.

    Args:
        job: the runs.
        prepared_on: device on which samples are gathered, drawn, augmented and encoded.
        device: device of the networks.
    """

    def __init__(self, job: Job, prepared_on: torch.device, device: torch.device) -> None:
        self._job, self._prepared_on, self._device = job, prepared_on, device
        name = job.recipe.augmentation
        self._augment = AUGMENTATIONS.get(name) if name else None
        self._keys = {name: keys(job.seeds, name).to(prepared_on) for name in ("augmentation", "draw")}
        self._redraws = bool(self._augment or job.dataset.draw)
        self.rows = ResampledRows(job, prepared_on) if job.resamples else None

    def begin_epoch(self, epoch: int, runs: Tensor) -> None:
        """Draw the order of the samples of some runs."""
        job = self._job
        samples, used = len(job.dataset.splits["train"]), job.steps_per_epoch * job.batch
        orders = [torch.randperm(samples, generator=generator(job.seeds[run], "order", epoch))[:used] for run in runs.tolist()]
        self._order, self._runs = torch.stack(orders), runs
        self._block = range(0)

    def take(self, epoch: int, step: int) -> tuple[Tensor, Tensor]:
        """Return the samples and targets of a step, ``(runs, batch, …)`` each."""
        job = self._job
        if step not in self._block:
            self._gather(step)
        first = (step - self._block.start) * job.batch
        x, y = self._x[:, first : first + job.batch], self._y[:, first : first + job.batch]
        if self._redraws:
            runs, number = self._runs.to(self._prepared_on), epoch * job.steps_per_epoch + step
            if job.dataset.draw:
                x, y = job.dataset.draw(x, y, self._keys["draw"][runs], number)
            if self._augment:
                x = self._augment(x, self._keys["augmentation"][runs], number)
            x, y = job.dataset.encode(x).to(self._device), y.to(self._device)
        return x, y

    def _gather(self, step: int) -> None:
        # Blocks begin at the same steps wherever a training resumes, so that every product is the same call.
        job = self._job
        steps = max(1, BLOCK_NUMEL // (len(self._runs) * job.batch * math.prod(job.dataset.inputs)))
        start = step // steps * steps
        self._block = range(start, min(start + steps, job.steps_per_epoch))
        rows = self._order[:, start * job.batch : self._block.stop * job.batch]
        if self.rows:
            self._x, self._y = self.rows.take("train", self._runs, rows)
        else:
            train = job.dataset.splits["train"]
            self._x, self._y = gather(train.x, rows).to(self._prepared_on), gather(train.y, rows).to(self._prepared_on)
        if not self._redraws:
            x = job.dataset.encode(self._x)
            x = x.mT.contiguous().mT if job.stacked and x.dim() == 3 else x  # the batch last, as stacked layers read it
            self._x, self._y = x.to(self._device), self._y.to(self._device)


class ResampledRows:
    """Rows of runs that have their own splits, standardized by each run's training rows.

    Samples are stored once and standardized in pieces, so that runs on many splits train as one stack.
    """

    def __init__(self, job: Job, device: torch.device) -> None:
        assert job.dataset.pool is not None
        self._pool, self._device, resamples = job.dataset.pool, device, job.resamples
        self._regression = job.dataset.task == "regression"
        rows = {name: torch.stack([each.rows[name] for each in resamples]) for name in ("train", *job.eval_splits)}
        self._rows = {name: numbers.to(self._pool.x.device) for name, numbers in rows.items()}
        moments = [torch.stack([getattr(each, name) for each in resamples]).unsqueeze(1) for name in ("mean", "scale")]
        for name in ("target_mean", "target_scale"):
            moments.append(torch.tensor([getattr(each, name) for each in resamples]).view(-1, 1, 1))
        self._moments = [values.to(device) for values in moments]

    def take(self, split: str, runs: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
        """Return the samples and targets at places ``(runs, samples)`` of some runs' splits."""
        rows = self._rows[split][runs.to(self._pool.x.device)].gather(1, places.to(self._pool.x.device))
        x, y = (gather(values, rows).to(self._device) for values in (self._pool.x, self._pool.y))
        mean, scale, target_mean, target_scale = (values[runs.to(self._device)] for values in self._moments)
        x = x.sub_(mean).div_(scale).nan_to_num_(nan=0.0)  # a gap in a table becomes the center of its column
        return x, y.sub_(target_mean).div_(target_scale) if self._regression else y

    def pieces(self, split: str, runs: Tensor, size: int) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """Yield a split of some runs, ``size`` samples at a time."""
        samples = self._rows[split].shape[1]
        for places in torch.arange(samples).split(size):
            piece = slice(int(places[0]), int(places[-1]) + 1)
            yield piece, *self.take(split, runs, places.expand(len(runs), -1))


def gather(stored: Tensor, rows: Tensor) -> Tensor:
    """Return stored values by rows ``(runs, samples)`` as ``(runs, samples, …)``."""
    flat = rows.flatten().to(stored.device)
    shape: Sequence[int] = (*rows.shape, *stored.shape[1:])
    if stored.shape[1:] == (1,):  # five times faster as a vector
        return stored.squeeze(1).index_select(0, flat).view(shape)
    return stored.index_select(0, flat).view(shape)


def bytes_per_run(data: Description, model: Family, spec: str, widths: Sequence[int], recipe: Recipe) -> int:
    """Estimate the memory of one run in training."""
    shape = (tuple(data.inputs), data.outputs, tuple(widths))
    train = data.samples["train"]
    kept = 2 * saved_bytes(model, *shape, spec) * min(recipe.batch, train)
    others = [count for name, count in data.samples.items() if name != "train"]
    outputs = FLOAT_BYTES * max(others, default=0) * data.outputs if data.extra_metrics or recipe.metrics else 0
    parameters = COPIES_OF_PARAMETERS * model.parameters(*shape, boolit.activation(spec))
    return FLOAT_BYTES * (parameters + 2 * train) + max(kept, outputs)


@lru_cache(maxsize=4096)
def saved_bytes(model: Family, inputs: tuple[int, ...], outputs: int, widths: tuple[int, ...], spec: str) -> int:
    """Measure the bytes saved per sample for the backward pass, without parameters and buffers.

    Networks that are too large to be stacked (``trains_alone``) are measured on the meta device, where nothing is computed.
    Gates then use their reference implementation, which saves more than the kernels.
    """
    shape = (inputs, outputs, widths, spec)
    with torch.random.fork_rng(devices=[]), torch.device("meta" if model.trains_alone else "cpu"):
        network = model.stacked(1, *shape) if model.stackable else model.network(*shape)
        x = torch.zeros(*([1] if model.stackable else []), SAMPLES, *inputs)
    saved: dict[int, int] = {}

    def record(values: Tensor) -> Tensor:
        storage = values.untyped_storage()
        saved[storage._cdata] = storage.nbytes()
        return values

    known = {values.untyped_storage()._cdata for values in (*network.parameters(), *network.buffers())}
    with torch.autograd.graph.saved_tensors_hooks(record, lambda values: values):
        kept_alive = network.train()(x)
    del kept_alive
    return sum(size for storage, size in saved.items() if storage not in known) // SAMPLES
