"""`Source`, a dataset by name and options as a study writes it, and `Dataset`, the data itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field, model_validator
from torch import Tensor

from boolit.lab.common.devices import DeviceCopies

Task = Literal["binary", "classes", "regression"]
Encode = Callable[[Tensor], Tensor]
Draw = Callable[[Tensor, Tensor, Tensor, int], tuple[Tensor, Tensor]]  # samples ``(runs, batch, …)``, targets, keys, step
ExtraMetrics = Callable[[str, Tensor], Mapping[str, Tensor]]  # a split, outputs ``(runs, samples, outputs)``: ``(runs,)`` each

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
    """What planning needs to know about a dataset."""

    inputs: tuple[int, ...]  # shape of an encoded sample
    outputs: int  # of a network
    task: Task
    samples: Mapping[str, int]  # by split
    extra_metrics: tuple[str, ...] = ()  # names of the metrics that the dataset adds on every split except ``train``


def identity(x: Tensor) -> Tensor:
    """Return the samples unchanged."""
    return x


def scale_and_shift(scale: Tensor, shift: Tensor) -> Encode:
    """Return an encoding of samples as ``x · scale + shift`` in float32, with tensors that broadcast to a sample."""
    scales, shifts = DeviceCopies(scale), DeviceCopies(shift)
    return lambda x: torch.addcmul(shifts.on(x.device), x.float(), scales.on(x.device))


def pixel_scale(scale: float, shift: float) -> Encode:
    """Return an encoding of bytes as ``x · scale − shift``."""
    return lambda x: (x.clone() if x.is_floating_point() else x.float()).mul_(scale).sub_(shift)


@dataclass(frozen=True)
class Dataset:
    """A loaded dataset.

    Example:
        >>> from boolit.lab import Dataset, Split
        >>> x = torch.randn(100, 2)
        >>> y = (x.prod(1, keepdim=True) > 0).float()
        >>> data = Dataset({"train": Split(x[:80], y[:80]), "test": Split(x[80:], y[80:])}, task="binary", outputs=1)
        >>> data.inputs, data.description.samples
        ((2,), {'train': 80, 'test': 20})
    """

    splits: Mapping[str, Split]  # ``train``, usually ``test``, and ``valid`` if there is one
    task: Task
    outputs: int  # of a network
    probes: tuple[Probe, ...] = field(default=())
    encode: Encode = identity  # turns stored samples ``(…, *stored)`` into network inputs ``(…, *inputs)``
    draw: Draw | None = None  # makes the samples and targets of a training step from those stored, the runs' keys and the step
    unit: float = 1.0  # what 1 in the targets of a regression stands for; RMSE is in that unit, the loss is not
    initial_values: Mapping[str, Tensor] = field(default_factory=dict)  # of network parameters and buffers, by name
    extra_metrics: ExtraMetrics | None = None  # further metrics of a split's outputs, the higher the better, after each epoch
    pool: Split | None = None  # all samples, for data that is split in many ways
    resample: Callable[[int], Resample] | None = None  # returns the split with a number
    input_shape: tuple[int, ...] | None = None  # of an encoded sample, if encoding one to see it is expensive

    @cached_property
    def inputs(self) -> tuple[int, ...]:
        """The shape of an encoded sample."""
        return self.input_shape or tuple(self.encode(self.splits["train"].x[:1]).shape[1:])

    @cached_property
    def description(self) -> Description:
        """The description that planning uses."""
        samples = {name: len(split) for name, split in self.splits.items()}
        other = next((name for name in samples if name != "train"), None)
        extra: tuple[str, ...] = ()
        if self.extra_metrics is not None and other is not None:  # the names come from a network whose outputs are 0
            extra = tuple(self.extra_metrics(other, torch.zeros(1, 1, 1).expand(1, samples[other], self.outputs)))
        return Description(self.inputs, self.outputs, self.task, samples, extra)


class Source(BaseModel, ABC):
    """A dataset by name and options: the ``[data]`` table of a study, which is part of a run's key. It holds no data.

    A dataset is a subclass with a field ``name`` and one field per option, registered with `boolit.lab.register_dataset`.

    Example:
        >>> from boolit.lab.datasets import source
        >>> xor = source({"name": "xor", "spread": 0.2})
        >>> xor.spread, xor.load().splits["train"].x.shape
        (0.2, torch.Size([256, 2]))
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    name: str

    @model_validator(mode="before")
    @classmethod
    def _identified(cls, options: Any) -> Any:
        return {**cls.identify(options), **options} if isinstance(options, dict) else options

    @classmethod
    def identify(cls, options: Mapping[str, Any]) -> Mapping[str, Any]:  # noqa: ARG003 (for subclasses)
        """Return defaults that depend on files, such as a hash of their content, given the options that are set."""
        return {}

    @abstractmethod
    def load(self) -> Dataset:
        """Return the data; equal options must give equal data."""

    def describe(self) -> Description | None:
        """Return the description of the data without loading it, or None if only the data can tell.

        The numbers of samples may be those of the published files.
        """
        return None


def split_sizes(samples: Mapping[str, int], validation: float, subset: float) -> dict[str, int]:
    """Return the number of samples by split after ``validation`` and ``subset`` are applied to the split ``train``."""
    held_out = round(validation * samples["train"])
    train = max(1, round(subset * (samples["train"] - held_out)))
    return {**samples, "train": train} | ({"valid": held_out} if held_out else {})


def look_up_rows(table: DeviceCopies, rows: Tensor) -> Tensor:
    """Return rows of a table by number, as float32. Shape: ``(…)`` numbers to ``(…, features)``."""
    return table.take(rows.flatten()).float().view(*rows.shape, -1)
