"""`Source`, a dataset by name and options as a study writes it, and `Dataset`, the data itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

Task = Literal["binary", "classes", "regression"]
Encode = Callable[[Tensor], Tensor]
Draw = Callable[[Tensor, Tensor, Tensor, int], tuple[Tensor, Tensor]]
ExtraMetrics = Callable[[str, Tensor], Mapping[str, Tensor]]

# The options ``validation`` and ``subset`` of all datasets: the share of the training rows that is held out as the split
# ``valid``, and the share of the remaining rows to train on.
Validation = Annotated[float, Field(ge=0, lt=1)]
Subset = Annotated[float, Field(gt=0, le=1)]


@dataclass(frozen=True)
class Split:
    """Samples and their targets.

    Shape: ``x`` is ``(samples, …)``; ``y`` is ``(samples,)`` class numbers for the task ``classes``, otherwise
    ``(samples, outputs)`` floats.
    """

    x: Tensor
    y: Tensor

    def __len__(self) -> int:
        return self.x.shape[0]

    def to(self, device: torch.device) -> Split:
        """Return the split on a device."""
        return Split(self.x.to(device), self.y.to(device))


@dataclass(frozen=True)
class Resample:
    """The rows of one run by split, and the moments of its training rows that standardize the data.

    Shape: ``rows`` are ``(rows of the split,)``, of equal size in every resample; ``mean`` and ``scale`` are ``(features,)``.
    """

    rows: Mapping[str, Tensor]
    mean: Tensor
    scale: Tensor
    target_mean: float = 0.0
    target_scale: float = 1.0


@dataclass(frozen=True)
class Probe:
    """Samples that are evaluated once after training.

    ``metrics`` maps outputs ``(runs, samples, outputs)`` to metrics of shape ``(runs,)``.
    """

    x: Tensor
    metrics: Callable[[Tensor], Mapping[str, Tensor]]


@dataclass(frozen=True)
class Description:
    """What planning needs to know about a dataset.

    Args:
        inputs: shape of an encoded sample.
        outputs: number of outputs of a network.
        task: ``binary``, ``classes`` or ``regression``.
        samples: number of samples by split.
        extra_metrics: names of the metrics that the dataset adds on every split except ``train``.
    """

    inputs: tuple[int, ...]
    outputs: int
    task: Task
    samples: Mapping[str, int]
    extra_metrics: tuple[str, ...] = ()


def identity(x: Tensor) -> Tensor:
    """Return the samples unchanged."""
    return x


@dataclass(frozen=True)
class PixelScale:
    """An encoding of bytes as ``x · scale − shift``."""

    scale: float
    shift: float

    def __call__(self, x: Tensor) -> Tensor:
        return (x.clone() if x.is_floating_point() else x.float()).mul_(self.scale).sub_(self.shift)

    @cached_property
    def table(self) -> Tensor:
        """The encoding of every byte, of shape ``(256,)``."""
        return self(torch.arange(256, dtype=torch.uint8))


@dataclass(frozen=True)
class Dataset:
    """A loaded dataset.

    Args:
        splits: ``train``, usually ``test``, and ``valid`` if there is one.
        task: ``binary``, ``classes`` or ``regression``.
        outputs: number of outputs of a network.
        probes: samples that are evaluated once after training.
        encode: turns stored samples ``(…, *stored)`` into network inputs ``(…, *inputs)``.
        draw: makes the batch of a training step from stored samples ``(runs, batch, …)``, their targets, the runs' keys and
            the step; returns samples and targets.
        unit: what 1 in the targets of a regression stands for; RMSE is in that unit, the loss is not.
        initial_values: initial values of network parameters and buffers, by their names in the state dict.
        extra_metrics: maps the name of a split and the outputs ``(runs, samples, outputs)`` for all its samples to further
            metrics of shape ``(runs,)``, where higher is better. It is called on every split except ``train`` after each epoch.
        pool: all samples, for data that is split in many ways.
        resample: returns the split with a number.
        input_shape: shape of an encoded sample, if encoding one to see it is expensive.

    Example:
        >>> from boolit.lab import Dataset, Split
        >>> x = torch.randn(100, 2)
        >>> y = (x.prod(1, keepdim=True) > 0).float()
        >>> data = Dataset({"train": Split(x[:80], y[:80]), "test": Split(x[80:], y[80:])}, task="binary", outputs=1)
        >>> data.inputs, data.description.samples, data.extra_metric_names("test")
        ((2,), {'train': 80, 'test': 20}, [])
    """

    splits: Mapping[str, Split]
    task: Task
    outputs: int
    probes: tuple[Probe, ...] = field(default=())
    encode: Encode = identity
    draw: Draw | None = None
    unit: float = 1.0
    initial_values: Mapping[str, Tensor] = field(default_factory=dict)
    extra_metrics: ExtraMetrics | None = None
    pool: Split | None = None
    resample: Callable[[int], Resample] | None = None
    input_shape: tuple[int, ...] | None = None

    @cached_property
    def inputs(self) -> tuple[int, ...]:
        """The shape of an encoded sample."""
        return self.input_shape or tuple(self.encode(self.splits["train"].x[:1]).shape[1:])

    @cached_property
    def description(self) -> Description:
        """The description that planning uses."""
        samples = {name: len(split) for name, split in self.splits.items()}
        others = [name for name in samples if name != "train"]
        extra = tuple(self.extra_metric_names(others[0])) if others else ()
        return Description(self.inputs, self.outputs, self.task, samples, extra)

    def extra_metric_names(self, split: str) -> list[str]:
        """Return the names of the extra metrics of a split, by evaluating a network whose outputs are 0."""
        if self.extra_metrics is None:
            return []
        return list(self.extra_metrics(split, torch.zeros(1, 1, 1).expand(1, len(self.splits[split]), self.outputs)))


class Source(BaseModel, ABC):
    """A dataset by name and options: the ``[data]`` table of a study, which is part of a run's key. It holds no data.

    A dataset is a subclass with a field ``name`` and one field per option, registered with `boolit.lab.register_dataset`.

    Example:
        >>> from boolit.lab.datasets import source
        >>> xor = source({"name": "xor", "spread": 0.2})
        >>> xor.describe().inputs, xor.load().splits["train"].x.shape[1:]
        ((2,), torch.Size([2]))
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    name: str

    generated: ClassVar[bool] = False  # whether `load` makes all samples at once, as floats

    @abstractmethod
    def load(self) -> Dataset:
        """Return the data; equal options must give equal data."""

    def describe(self) -> Description | None:
        """Return the description of the data without loading it, or None if only the data can tell.

        The numbers of samples may be those of the published files.
        """
        return None

    def prepare(self) -> None:
        """Do work that is slow and only needed for training; by default it is done when the first sample is encoded."""


def training_sizes(count: int, validation: float, subset: float = 1.0) -> tuple[int, int]:
    """Return how many of ``count`` training rows are trained on and how many are held out."""
    held_out = round(validation * count)
    return max(1, round(subset * (count - held_out))), held_out
