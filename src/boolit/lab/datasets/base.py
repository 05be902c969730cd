"""What every dataset hands to the trainer, and what a dataset's file has to say."""

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
    """

    x: Tensor
    y: Tensor

    def __len__(self) -> int:
        return self.x.shape[0]


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

    ``figures`` takes outputs ``(runs, samples, outputs)`` and returns some figures, each of shape ``(runs,)``.
    """

    x: Tensor
    figures: Callable[[Tensor], Mapping[str, Tensor]]


@dataclass(frozen=True)
class Description:
    """What a plan needs to know of data, and no sample of it.

    ``inputs`` is the shape of a sample as a network reads it, ``samples`` how many there are by split, ``extra_metrics`` the
    names of the data's own metrics on every split but ``train``, besides those of its task.
    """

    inputs: tuple[int, ...]
    outputs: int
    task: Task
    samples: Mapping[str, int]
    extra_metrics: tuple[str, ...] = ()


@dataclass(frozen=True)
class Dataset:
    """Splits by name (``train``, and ``test`` unless it is for choosing), what is asked of a network, and how many numbers it
    answers with.

    Samples may be stored small, as bytes or tokens: ``encode`` turns them into what a network reads, whatever axes come before
    a sample's own. ``draw`` makes the batch of a training step from stored samples, anew in every step: it takes samples
    ``(runs, batch, …)``, their targets, the runs' keys and the step, and returns samples and targets. ``unit`` is what 1 in a
    regression's targets stands for; its RMSE is told in that unit, its loss is not.

    ``given`` are values networks begin with, by their names in a network's state: word vectors, a list of pairs.
    ``extra_metrics`` takes the name of a split and the outputs ``(runs, samples, outputs)`` of all its samples, and returns
    further metrics, each ``(runs,)``, where higher is better; it is called for every split but ``train`` after every epoch.
    ``input_shape`` is the shape of an encoded sample, where encoding one to see it would be expensive.

    Data that can be split in many ways has all its samples in ``pool``, and ``resample`` makes the split of a number.
    """

    splits: Mapping[str, Split]
    task: Task
    outputs: int
    probes: tuple[Probe, ...] = field(default=())
    encode: Encode | None = None
    draw: Draw | None = None
    unit: float = 1.0
    given: Mapping[str, Tensor] = field(default_factory=dict)
    extra_metrics: ExtraMetrics | None = None
    pool: Split | None = None
    resample: Callable[[int], Resample] | None = None
    input_shape: tuple[int, ...] | None = None

    @cached_property
    def inputs(self) -> tuple[int, ...]:
        """The shape of one sample as a network reads it."""
        return self.input_shape or tuple(self.encoded(self.splits["train"].x[:1]).shape[1:])

    def encoded(self, x: Tensor) -> Tensor:
        """Stored samples as a network reads them.

        Shape: ``(…, *stored)`` to ``(…, *inputs)``.
        """
        return self.encode(x) if self.encode else x

    @property
    def description(self) -> Description:
        """What is known of it without its samples."""
        samples = {name: len(split) for name, split in self.splits.items()}
        others = [name for name in samples if name != "train"]
        return Description(
            self.inputs, self.outputs, self.task, samples, tuple(self.extra_metric_names(others[0])) if others else ()
        )

    def extra_metric_names(self, split: str) -> list[str]:
        """The names of the extra metrics: those of a network that answers 0 to every sample."""
        if self.extra_metrics is None:
            return []
        return list(self.extra_metrics(split, torch.zeros(1, 1, 1).expand(1, len(self.splits[split]), self.outputs)))


class Source(BaseModel, ABC):
    """A dataset by its name and options: the ``[data]`` table of a study.

    A dataset is one file: a subclass with a field ``name`` and one field an option, registered with `register`.
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
