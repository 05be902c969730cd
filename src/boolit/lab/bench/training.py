"""What stacking runs gains over training them one after the other, and what a step of large networks costs.

As ratios: what is compared is timed in turn, in one go. Numbers are random, in the real shapes. One after the other is done in
two ways: by the lab's own trainer, and as it is written without a lab, with modules and an optimiser of torch.
"""

from __future__ import annotations

import math
import multiprocessing
import resource
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch.optim.lr_scheduler import LambdaLR, OneCycleLR

import boolit
from boolit.lab.common.devices import use_device
from boolit.lab.common.random import generator, keys
from boolit.lab.datasets import Dataset, Split
from boolit.lab.datasets.embeddings import Features
from boolit.lab.datasets.images.augmentation import AUGMENTATIONS
from boolit.lab.datasets.images.mnist import normalize
from boolit.lab.models import family
from boolit.lab.models.resnet18 import FEATURES, Resnet18
from boolit.lab.studies import load_study, plan
from boolit.lab.training.job import Job
from boolit.lab.training.recipe import Recipe
from boolit.lab.training.single import SingleTraining
from boolit.lab.training.stacked import StackedTraining
from boolit.lab.training.threads import Threads

PARITY, COVERTYPE, MNIST = "parity study", "54-32-32-7 with batch norm", "mnist-mlp, 65k parameters, relu"
STACKING_BARS = {PARITY: 28, COVERTYPE: 8, MNIST: 3.5}  # at least so many times faster
AUGMENTATION_BAR, HEADS_BAR = 1, 3  # at most so many times as much
AUGMENTATION, AUGMENTATION_BATCH = "affine", 256
RESNETS, RESNET_PARAMETERS, RESNET_BATCH = ("relu", "or_ail", "or_and_ail_d"), 23_500_000, 32
HEADS_BATCH = 128
MLP = {"name": "mlp", "normalisation": "batch"}
CONSTANT_RATE = {"learning_rate": 1e-4, "schedule": "constant"}
CLASSES = 10
IMAGE = (3, 32, 32)
KIB = 1024
PROCESS = Path("/proc/self/status")


@dataclass(frozen=True)
class StackingGain:
    """Seconds an epoch of some runs takes stacked, one after the other by the same trainer, and so in a loop of plain torch."""

    runs: int
    stacked: float
    loop: float
    plain: float

    @property
    def ratio(self) -> float:
        """How many times faster stacking is than the same trainer with one run."""
        return self.loop / self.stacked

    @property
    def plain_ratio(self) -> float:
        """How many times faster it is than plain torch."""
        return self.plain / self.stacked


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


@dataclass(frozen=True)
class StepCost:
    """A network's parameters, the seconds of a training step and the most bytes it takes, over those of an idle process."""

    parameters: int
    seconds: float
    peak: int


@dataclass(frozen=True)
class HeadsCost:
    """Seconds of encoding a batch of images, of a step of one head and of a step of all heads."""

    heads: int
    encoder: float
    one: float
    all: float

    @property
    def ratio(self) -> float:
        """What training all heads costs in trainings of one, each with the encoder."""
        return (self.encoder + self.all) / (self.encoder + self.one)


@dataclass(frozen=True)
class TrainingResult:
    """Everything ``boolit bench training`` measures."""

    gains: Mapping[str, StackingGain]
    augmentation: AugmentationCost
    steps: Mapping[str, StepCost]
    heads: HeadsCost

    def to_json(self) -> dict[str, Any]:
        """As plain JSON."""
        own = self.augmentation
        return {
            "stacking": {
                name: asdict(gain) | {"ratio": gain.ratio, "plain_ratio": gain.plain_ratio} for name, gain in self.gains.items()
            },
            "augmentation": {"name": AUGMENTATION, "seconds": own.augmentation, "step": own.step, "ratio": own.ratio},
            "resnet50": {spec: asdict(step) for spec, step in self.steps.items()},
            "heads": asdict(self.heads) | {"ratio": self.heads.ratio},
        }


@use_device("cpu")  # which the plain loop is on
def measure_training(rounds: int, begin: Callable[[str, int], Callable[[int], object]]) -> TrainingResult:
    """Measures all of it; ``begin`` starts a progress bar of some parts and returns what advances it."""
    heads = load_study("transfer-cifar10").resolve("paper").study.sweep
    cohorts = plan(load_study("parity")).cohorts
    advance = begin("training", len(cohorts) + 5)
    gains: dict[str, StackingGain] = {}
    for cohort in cohorts:
        gains[f"parity, {cohort.runs[0].config.activation}"] = compare_with_loop(cohort.job(), rounds)
        advance(1)
    gains[PARITY] = total_gain(gains)
    for name, job in {COVERTYPE: batch_norm_job(), MNIST: mnist_job()}.items():
        gains[name] = compare_with_loop(job, rounds)
        advance(1)
    augmentation = augmentation_cost(AUGMENTATION)
    advance(1)
    steps = resnet_steps(RESNETS, RESNET_PARAMETERS, RESNET_BATCH, rounds)
    advance(1)
    all_heads = heads_cost(heads.activation, len(heads.seed_list), HEADS_BATCH, rounds)
    advance(1)
    return TrainingResult(gains, augmentation, steps, all_heads)


# Stacked runs against runs one after the other, and the augmentation that feeds them.


def compare_with_loop(job: Job, rounds: int = 5) -> StackingGain:
    """Trains epochs of all runs stacked, of single runs and of one in plain torch in turn, so that all see the same machine.

    The medians are compared, a single run's times the number of runs; what a run costs before its first epoch is left out.
    """
    singles = [replace(job, recipes=(job.recipes[run],), seeds=(job.seeds[run],)) for run in range(min(rounds, job.runs))]
    together, alone, plain = _Cohort(job), [_Cohort(single) for single in singles], _PlainLoop(singles[0])
    times = []
    for round_ in range(rounds + 1):
        times.append((together.time_epoch(), alone[round_ % len(alone)].time_epoch(), plain.time_epoch()))
    stacked, single, by_torch = (median(column) for column in zip(*times[1:], strict=True))
    return StackingGain(job.runs, stacked, job.runs * single, job.runs * by_torch)


def total_gain(gains: Mapping[str, StackingGain]) -> StackingGain:
    """The gain of several cohorts together: a study's."""
    values = gains.values()
    seconds = (sum(getattr(gain, way) for gain in values) for way in ("stacked", "loop", "plain"))
    return StackingGain(sum(gain.runs for gain in values), *seconds)


def batch_norm_job(runs: int = 40, batch: int = 256) -> Job:
    """Batch-normalised ReLU MLPs 54-32-32-7 on random numbers of Covertype's shape."""
    drawn = generator(0, "bench")
    split = Split(torch.randn(8192, 54, generator=drawn), torch.randint(7, (8192,), generator=drawn))
    dataset = Dataset({"train": split, "test": Split(split.x[:1024], split.y[:1024])}, "classes", 7)
    return _job(dataset, MLP, "relu", (32, 32), runs, batch=batch)


def mnist_job(runs: int = 10, batch: int = 100) -> Job:
    """The study mnist-mlp's 65k ReLU networks on random images of MNIST's shape."""
    drawn = generator(0, "bench")
    images = torch.randint(256, (5_000, 28, 28), generator=drawn, dtype=torch.uint8)
    split = Split(images, torch.randint(10, (len(images),), generator=drawn))
    dataset = Dataset({"train": split, "test": Split(split.x[:100], split.y[:100])}, "classes", 10, encode=normalize)
    return _job(dataset, MLP, "relu", (75, 75), runs, batch=batch)


def _job(dataset: Dataset, network: Mapping[str, Any], spec: str, widths: Sequence[int], runs: int, **recipe: Any) -> Job:
    recipes = (Recipe.model_validate({"epochs": 10**6, **recipe}),) * runs
    return Job(dataset, family(network), spec, tuple(widths), recipes, seeds=tuple(range(runs)))


def augmentation_cost(name: str, batch: int = AUGMENTATION_BATCH, runs: int = 10, rounds: int = 60) -> AugmentationCost:
    """Times an augmentation of MNIST's images and the step it feeds in turn; the medians count."""
    cohort = _Cohort(mnist_job(runs, batch))
    images = cohort.training.job.dataset.splits["train"].x[: runs * batch // 2].repeat(2, 1, 1).view(runs, batch, 28, 28)
    own, augment = keys(range(runs), "augmentation"), AUGMENTATIONS[name]
    times = [(_seconds(partial(augment, images, own, step)), cohort.time_step()) for step in range(rounds)]
    augmented, stepped = zip(*times, strict=True)
    return AugmentationCost(runs, median(augmented), median(stepped))


class _Cohort:
    """A cohort's training and the threads it is worth, which are tried out before anything is timed."""

    def __init__(self, job: Job) -> None:
        self.training, self.threads = StackedTraining(job), Threads(job)

    def time_epoch(self) -> float:
        return self.time_step(self.training.job.steps_per_epoch)

    def time_step(self, steps: int = 1) -> float:
        with self.threads as threads:
            started = time.perf_counter()
            for _ in range(steps):
                threads.run(self.training.step)
            return time.perf_counter() - started


class _PlainLoop:
    """One run of a job whose networks are MLPs, as it is written with torch alone: the same batches, steps and metrics."""

    def __init__(self, job: Job) -> None:
        recipe, dataset = job.recipe, job.dataset
        assert recipe.optimiser == "adam"
        assert recipe.schedule in ("one-cycle", "constant")
        options = job.family.model_dump()
        inputs, norm = math.prod(dataset.inputs), options["normalisation"]
        self.network = boolit.nn.MLP(inputs, job.widths, dataset.outputs, job.activation, normalisation=norm)
        rate = float(recipe.learning_rate)
        self.optimiser = torch.optim.Adam(self.network.parameters(), rate, weight_decay=recipe.weight_decay)
        steps = recipe.epochs * job.steps_per_epoch
        constant = recipe.schedule == "constant"
        self.schedule = (
            LambdaLR(self.optimiser, lambda _: 1.0)
            if constant
            else OneCycleLR(self.optimiser, rate, total_steps=steps, cycle_momentum=False)
        )
        self.job, self.threads = job, Threads(job)
        self.binary = dataset.task == "binary"
        self.loss = torch.nn.BCEWithLogitsLoss() if self.binary else torch.nn.CrossEntropyLoss()

    def time_epoch(self) -> float:
        with self.threads:
            return _seconds(self._epoch)

    def _epoch(self) -> None:
        dataset, batch = self.job.dataset, self.job.batch
        train, loss_sum, hits = dataset.splits["train"], torch.zeros(()), torch.zeros(())
        self.network.train()
        for rows in torch.randperm(len(train))[: self.job.steps_per_epoch * batch].split(batch):
            outputs, targets = self.network(dataset.encode(train.x[rows]).flatten(1)), train.y[rows]
            loss = self.loss(outputs, targets)
            self.optimiser.zero_grad()
            loss.backward()
            self.optimiser.step()
            self.schedule.step()
            loss_sum += loss.detach()
            hits += self._accuracy(outputs.detach(), targets)
        self.network.eval()
        with torch.no_grad():
            for name in self.job.eval_splits:
                split = dataset.splits[name]
                outputs = self.network(dataset.encode(split.x).flatten(1))
                self.loss(outputs, split.y), self._accuracy(outputs, split.y)

    def _accuracy(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        right = (outputs > 0) == (targets > 0.5) if self.binary else outputs.argmax(1) == targets
        return right.float().mean()


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


# A ResNet-50 with one activation and with another, and all heads on one encoder.


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


def heads_cost(specs: Sequence[str], seeds: int, batch: int, rounds: int, side: int = 224) -> HeadsCost:
    """Times a batch of the frozen ResNet-18, a step of a ReLU head on its features, and one of all heads, in turn."""
    features = Features(Resnet18().eval())
    images = torch.randint(256, (batch, 3, side, side), generator=generator(0, "bench"), dtype=torch.uint8)
    cohorts, alone = [_Cohort(_head_job(spec, seeds, batch)) for spec in specs], _Cohort(_head_job("relu", 1, batch))
    times: list[tuple[float, float, float]] = []
    for _ in range(rounds + 1):
        encoded = _seconds(lambda: features(images))
        times.append((encoded, alone.time_step(), sum(cohort.time_step() for cohort in cohorts)))
    encoder, one, all_ = (min(column) for column in zip(*times[1:], strict=True))
    return HeadsCost(len(specs) * seeds, encoder, one, all_)


def _resnet_job(spec: str, budget: int, batch: int, base: int) -> Job:
    network = {"name": "preact-resnet", "base": base}
    widths = family(network).widths_for_budget(budget, 1, IMAGE, CLASSES, boolit.activation(spec))
    return _job(_random_classes(8 * batch, *IMAGE), network, spec, widths, 1, batch=batch, **CONSTANT_RATE)


def _head_job(spec: str, seeds: int, batch: int) -> Job:
    network, activation = {"name": "head", "sizes": "matched"}, boolit.activation(spec)
    widths = family(network).widths_for_activation([512, 512], (FEATURES,), CLASSES, activation)
    rounded = [activation.divisor * round(width / activation.divisor) for width in widths]
    return _job(_random_classes(8 * batch, FEATURES), network, spec, rounded, seeds, batch=batch, **CONSTANT_RATE)


def _random_classes(*shape: int) -> Dataset:
    x = torch.randn(*shape, generator=generator(0, "bench"))
    split = Split(x, torch.randint(CLASSES, (len(x),), generator=generator(0, "targets")))
    return Dataset({"train": split, "test": Split(split.x[:1], split.y[:1])}, "classes", CLASSES)


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
