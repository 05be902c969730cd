"""What stacking runs gains over training them one after the other, and what a step of large networks costs.

As ratios: what is compared is timed in turn, in one go, and the fastest of each counts. Numbers are random, in the real shapes.
"""

from __future__ import annotations

import multiprocessing
import resource
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import torch
from torch import Tensor

import boolit
from boolit.lab.common.random import generator, keys
from boolit.lab.datasets import Dataset, Split
from boolit.lab.datasets.features.encoder import Features
from boolit.lab.datasets.images.augmentation import AUGMENTATIONS
from boolit.lab.datasets.images.mnist import normalise
from boolit.lab.models import Family, family
from boolit.lab.models.resnet18 import FEATURES, Resnet18
from boolit.lab.training.devices import Threads
from boolit.lab.training.job import Job
from boolit.lab.training.recipe import Recipe
from boolit.lab.training.single import SingleTraining
from boolit.lab.training.stacked import StackedTraining

# How much faster a cohort is than its runs one after the other, as a ratio measured in one go.


@dataclass(frozen=True)
class StackingGain:
    """Seconds an epoch of some runs takes stacked, and in a plain loop of the same trainer."""

    runs: int
    stacked: float
    loop: float

    @property
    def ratio(self) -> float:
        """How many times faster stacking is."""
        return self.loop / self.stacked


def compare_with_loop(job: Job, rounds: int = 5) -> StackingGain:
    """Trains epochs of all runs stacked and epochs of single runs in turn, so that both see the same machine.

    The medians are compared, the single run's times the number of runs; what a run costs before its first epoch is left out.
    """
    together, alone = _Timed(job), [_Timed(_single(job, run)) for run in range(min(rounds, job.runs))]
    stacked, single = [], []
    for round_ in range(rounds + 1):
        stacked.append(together.epoch())
        single.append(alone[round_ % len(alone)].epoch())
    return StackingGain(job.runs, median(stacked[1:]), job.runs * median(single[1:]))


def total(gains: Mapping[str, StackingGain]) -> StackingGain:
    """The gain of several cohorts together: a study's."""
    values = gains.values()
    return StackingGain(sum(g.runs for g in values), sum(g.stacked for g in values), sum(g.loop for g in values))


def batch_norm_job(runs: int = 40, batch: int = 256, activation: str = "relu") -> Job:
    """Batch-normalised MLPs 54-32-32-7 on random numbers of Covertype's shape."""
    drawn = generator(0, "bench")
    split = Split(torch.randn(8192, 54, generator=drawn), torch.randint(7, (8192,), generator=drawn))
    recipe = Recipe.model_validate({"epochs": 10**6, "batch": batch})
    return Job(
        dataset=Dataset({"train": split, "test": Split(split.x[:1024], split.y[:1024])}, "classes", 7),
        family=family({"name": "mlp", "normalisation": "batch"}),
        activation=activation,
        widths=(32, 32),
        recipes=(recipe,) * runs,
        seeds=tuple(range(runs)),
    )


def mnist_job(runs: int = 10, batch: int = 100, augmentation: str | None = None) -> Job:
    """The study mnist-mlp's 65k ReLU networks on random pictures of MNIST's shape."""
    drawn = generator(0, "bench")
    pictures = torch.randint(256, (5_000, 28, 28), generator=drawn, dtype=torch.uint8)
    split = Split(pictures, torch.randint(10, (len(pictures),), generator=drawn))
    recipe = Recipe.model_validate({"epochs": 10**6, "batch": batch, "augmentation": augmentation})
    return Job(
        dataset=Dataset({"train": split, "test": Split(split.x[:100], split.y[:100])}, "classes", 10, encode=normalise),
        family=family({"name": "mlp", "normalisation": "batch"}),
        activation="relu",
        widths=(75, 75),
        recipes=(recipe,) * runs,
        seeds=tuple(range(runs)),
    )


@dataclass(frozen=True)
class AugmentationCost:
    """Seconds that augmenting a batch of every run takes, and the training step without it."""

    runs: int
    augmentation: float
    step: float

    @property
    def ratio(self) -> float:
        """Augmentation in steps."""
        return self.augmentation / self.step


def augmentation_cost(name: str, batch: int = 256, runs: int = 10, rounds: int = 60) -> AugmentationCost:
    """Times an augmentation of MNIST's pictures and the step it feeds in turn; the medians count."""
    training = _Timed(mnist_job(runs, batch))
    pictures = training.training.job.dataset.splits["train"].x[: runs * batch // 2].repeat(2, 1, 1).view(runs, batch, 28, 28)
    own, augment = keys(range(runs), "augmentation"), AUGMENTATIONS[name]
    augmented, stepped = [], []
    for round_ in range(rounds):
        started = time.perf_counter()
        augment(pictures, own, round_)
        between = time.perf_counter()
        training.step()
        augmented.append(between - started)
        stepped.append(time.perf_counter() - between)
    return AugmentationCost(runs, median(augmented), median(stepped))


def _single(job: Job, run: int) -> Job:
    return replace(job, recipes=(job.recipes[run],), seeds=(job.seeds[run],))


class _Timed:
    """A training, an epoch at a time."""

    def __init__(self, job: Job) -> None:
        self.training, self.threads = StackedTraining(job), Threads(job)

    def epoch(self) -> float:
        with self.threads as threads:
            started = time.perf_counter()
            for _ in range(self.training.job.steps_per_epoch):
                threads.make(self.training.step)
            return time.perf_counter() - started

    def step(self) -> None:
        with self.threads as threads:
            threads.make(self.training.step)


# What a step of large networks costs: a ResNet-50 with one activation and with another, and all heads on one encoder.

CLASSES = 10
PICTURE = (3, 32, 32)
KIB = 1024
PROCESS = Path("/proc/self/status")


@dataclass(frozen=True)
class StepCost:
    """A network's parameters, the seconds of a training step and the most bytes it takes, over those of an idle process."""

    parameters: int
    seconds: float
    peak: int


def resnet_steps(specs: Sequence[str], budget: int, batch: int, rounds: int, base: int = 64) -> dict[str, StepCost]:
    """A training step of the paper's pre-activation ResNet-50 with each activation, at about the same number of parameters."""
    trainings = {spec: SingleTraining(_resnet_job(spec, budget, batch, base)) for spec in specs}
    seconds: dict[str, list[float]] = {spec: [] for spec in specs}
    for _ in range(rounds + 1):
        for spec, training in trainings.items():
            seconds[spec].append(_seconds(training.step))
    counts = {spec: sum(values.numel() for values in training.model.parameters()) for spec, training in trainings.items()}
    peaks = [_in_new_process(spec, budget, batch, base) for spec in specs]
    return {spec: StepCost(counts[spec], min(seconds[spec][1:]), peak) for spec, peak in zip(specs, peaks, strict=True)}


@dataclass(frozen=True)
class HeadsCost:
    """Seconds of encoding a batch of pictures, of a step of one head and of a step of all heads."""

    heads: int
    encoder: float
    one: float
    all: float

    @property
    def ratio(self) -> float:
        """What training all heads costs in trainings of one, each with the encoder."""
        return (self.encoder + self.all) / (self.encoder + self.one)


def heads_cost(specs: Sequence[str], seeds: int, batch: int, rounds: int, side: int = 224) -> HeadsCost:
    """Times a batch of the frozen ResNet-18, a step of a ReLU head on its features, and one of all heads, in turn."""
    features = Features(Resnet18().eval())
    pictures = torch.randint(256, (batch, 3, side, side), generator=generator(0, "bench"), dtype=torch.uint8)
    cohorts, alone = [_Cohort(_head_job(spec, seeds, batch)) for spec in specs], _Cohort(_head_job("relu", 1, batch))
    times: list[tuple[float, float, float]] = []
    for _ in range(rounds + 1):
        encoded = _seconds(lambda: features(pictures))
        times.append((encoded, alone.step(), sum(cohort.step() for cohort in cohorts)))
    encoder, one, all_ = (min(column) for column in zip(*times[1:], strict=True))
    return HeadsCost(len(specs) * seeds, encoder, one, all_)


class _Cohort:
    """A cohort's training and the threads it is worth, which are tried out before anything is timed."""

    def __init__(self, job: Job) -> None:
        self.training, self.threads = StackedTraining(job), Threads(job)

    def step(self) -> float:
        with self.threads as threads:
            return _seconds(lambda: threads.make(self.training.step))


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def _job(network: Family, x: Tensor, widths: Sequence[int], spec: str, seeds: int, batch: int) -> Job:
    split = Split(x, torch.randint(CLASSES, (len(x),), generator=generator(0, "targets")))
    recipe = Recipe.model_validate({"epochs": 10**6, "batch": batch, "learning_rate": 1e-4, "schedule": "constant"})
    dataset = Dataset({"train": split, "test": Split(split.x[:1], split.y[:1])}, "classes", CLASSES)
    return Job(dataset, network, spec, tuple(widths), (recipe,) * seeds, tuple(range(seeds)))


def _resnet_job(spec: str, budget: int, batch: int, base: int) -> Job:
    network = family({"name": "preact-resnet", "base": base})
    widths = network.fitted(budget, 1, PICTURE, CLASSES, boolit.activation(spec))
    return _job(network, torch.randn(8 * batch, *PICTURE, generator=generator(0, "bench")), widths, spec, 1, batch)


def _head_job(spec: str, seeds: int, batch: int) -> Job:
    network, activation = family({"name": "head", "sizes": "matched"}), boolit.activation(spec)
    widths = network.adapted([512, 512], (FEATURES,), CLASSES, activation)
    rounded = [activation.divisor * round(width / activation.divisor) for width in widths]
    return _job(network, torch.randn(8 * batch, FEATURES, generator=generator(0, "bench")), rounded, spec, seeds, batch)


def _in_new_process(spec: str, budget: int, batch: int, base: int) -> int:
    """The peak of a process that does nothing else: a process never gives back what another network has taken before."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(_peak, spec, budget, batch, base, torch.get_num_threads()).result()


def _peak(spec: str, budget: int, batch: int, base: int, threads: int) -> int:
    torch.set_num_threads(threads)
    job = _resnet_job(spec, budget, batch, base)
    idle = _most_bytes()
    training = SingleTraining(job)
    for _ in range(3):
        training.step()
    return _most_bytes() - idle


def _most_bytes() -> int:
    """The most memory this process has had. Linux's getrusage would count what its parent had, too."""
    if PROCESS.exists():
        return KIB * next(int(line.split()[1]) for line in PROCESS.read_text().splitlines() if line.startswith("VmHWM"))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else KIB)
