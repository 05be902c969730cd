"""`Source` is a dataset by name and options, as a study writes it; its ``load`` makes the `Dataset`, which has the samples."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar, Literal

import torch
from pydantic import BaseModel, ConfigDict
from torch import Tensor

Task = Literal["binary", "classes", "regression"]
Encode = Callable[[Tensor], Tensor]
Draw = Callable[[Tensor, Tensor, Tensor, int], tuple[Tensor, Tensor]]
ExtraMetrics = Callable[[str, Tensor], Mapping[str, Tensor]]


@dataclass(frozen=True)
class Split:
    """Samples and their targets.

    Shape: ``x`` is ``(samples, …)``; ``y`` is ``(samples,)`` class numbers for the task ``classes``, otherwise
    ``(samples, outputs)`` floats.

    Example:
        >>> samples = Split(torch.zeros(100, 2), torch.ones(100, 1))
        >>> len(samples), samples.to(torch.device("cpu")).y.shape
        (100, torch.Size([100, 1]))
    """

    x: Tensor
    y: Tensor

    def __len__(self) -> int:
        return self.x.shape[0]

    def to(self, device: torch.device) -> Split:
        """The same samples on a device."""
        return Split(self.x.to(device), self.y.to(device))


@dataclass(frozen=True)
class Resample:
    """The rows of one run by split, out of all that are stored, and what it standardises by: moments of its training rows.

    Shape: ``rows`` are ``(rows of the split,)`` each, of the same size in every resample; ``mean`` and ``scale`` are
    ``(features,)``.
    """

    rows: Mapping[str, Tensor]
    mean: Tensor
    scale: Tensor
    target_mean: float = 0.0
    target_scale: float = 1.0


@dataclass(frozen=True)
class Probe:
    """Stored samples a trained network is asked once at the end, and what its outputs say.

    ``metrics`` takes outputs ``(runs, samples, outputs)`` and returns some metrics, each of shape ``(runs,)``.
    """

    x: Tensor
    metrics: Callable[[Tensor], Mapping[str, Tensor]]


@dataclass(frozen=True)
class Description:
    """What a plan needs to know of data, and no sample of it.

    ``inputs`` is the shape of a sample as a network reads it, ``samples`` how many there are by split, ``extra_metrics`` the
    names of the metrics that the data adds to those of its task, on every split but ``train``.
    """

    inputs: tuple[int, ...]
    outputs: int
    task: Task
    samples: Mapping[str, int]
    extra_metrics: tuple[str, ...] = ()


def identity(x: Tensor) -> Tensor:
    """Samples that are stored as a network reads them."""
    return x


@dataclass(frozen=True)
class PixelScale:
    """An encoding of bytes, each by itself: ``x · scale − shift``.

    Shape: any; unchanged.

    Example:
        >>> PixelScale(2 / 255, 1.0)(torch.tensor([0, 255], dtype=torch.uint8))
        tensor([-1.,  1.])
    """

    scale: float
    shift: float

    def __call__(self, x: Tensor) -> Tensor:
        return (x.clone() if x.is_floating_point() else x.float()).mul_(self.scale).sub_(self.shift)

    @cached_property
    def table(self) -> Tensor:
        """What stands for each byte.

        Shape: ``(256,)``.
        """
        return self(torch.arange(256, dtype=torch.uint8))


@dataclass(frozen=True)
class Dataset:
    """The data itself.

    ``splits`` are by name: ``train``, ``test`` unless it is for choosing, and ``valid`` where there is one. ``task`` is
    ``binary``, ``classes`` or ``regression``, ``outputs`` how many numbers a network answers with; ``probes`` are asked once at
    the end of a training. The rest is for data that needs it.

    Samples may be stored small, as bytes or tokens: ``encode`` turns them into what a network reads, whatever axes come before
    a sample's own: ``(…, *stored)`` to ``(…, *inputs)``. ``draw`` makes the batch of a training step from stored samples, anew
    in every step: it takes samples ``(runs, batch, …)``, their targets, the runs' keys and the step, and returns samples and
    targets. ``unit`` is what 1 in a regression's targets stands for; its RMSE is in that unit, its loss is not.

    ``initial_values`` are values networks begin with, by their names in a network's state: word vectors, a list of pairs.
    ``extra_metrics`` takes the name of a split and the outputs ``(runs, samples, outputs)`` of all its samples, and returns
    further metrics, each ``(runs,)``, where higher is better; it is called for every split but ``train`` after every epoch.
    ``input_shape`` is the shape of an encoded sample, where encoding one to see it would be expensive.

    Data that can be split in many ways has all its samples in ``pool``, and ``resample`` makes the split of a number.

    Shape: as `Split` says; outputs are ``(samples, outputs)``.

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
        """The shape of one sample as a network reads it."""
        return self.input_shape or tuple(self.encode(self.splits["train"].x[:1]).shape[1:])

    @property
    def description(self) -> Description:
        """What a plan needs to know of it, and no sample."""
        samples = {name: len(split) for name, split in self.splits.items()}
        others = [name for name in samples if name != "train"]
        extra = tuple(self.extra_metric_names(others[0])) if others else ()
        return Description(self.inputs, self.outputs, self.task, samples, extra)

    def extra_metric_names(self, split: str) -> list[str]:
        """The names of the data's own metrics on a split, found with a network that answers 0 to every sample."""
        if self.extra_metrics is None:
            return []
        return list(self.extra_metrics(split, torch.zeros(1, 1, 1).expand(1, len(self.splits[split]), self.outputs)))


class Source(BaseModel, ABC):
    """A dataset by its name and options: the ``[data]`` table of a study, which is part of a run's key. It holds no data.

    A dataset is one file: a subclass with a field ``name`` and one field per option, registered with
    `boolit.lab.register_dataset`.

    Example:
        >>> from boolit.lab.datasets import source
        >>> xor = source({"name": "xor", "spread": 0.2})  # of a study's [data]
        >>> xor.prepare()  # nothing, for this one
        >>> xor.describe().inputs, xor.load().splits["train"].x.shape[1:]
        ((2,), torch.Size([2]))
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    name: str

    generated: ClassVar[bool] = False  # whether `load` makes all samples at once, as floats

    @abstractmethod
    def load(self) -> Dataset:
        """The data itself; the same options must give the same data."""

    def describe(self) -> Description | None:
        """What `load` will give, found without loading it; None if only the data itself can tell.

        A study is planned by it. The numbers of samples may be those of the published files, whatever lies in their place.
        """
        return None

    def prepare(self) -> None:
        """Does what takes long and is only needed for training; otherwise it is done when the first sample is encoded."""
