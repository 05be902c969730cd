"""A run: its configuration, which determines its key, and its result."""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, model_validator

from boolit.lab.datasets import AnySource, load
from boolit.lab.models import AnyFamily
from boolit.lab.training import Job
from boolit.lab.training.recipe import METRICS, Recipe

JSON: TypeAlias = "bool | int | float | str | list[JSON] | dict[str, JSON] | None"
State: TypeAlias = Literal["finished", "diverged"]

KEY_DIGITS = 16
ARITHMETIC = 6  # part of every key: raised when the same configuration no longer gives the same numbers


class Metric(BaseModel):
    """The metric that runs are compared by.

    Args:
        name: ``loss``, the metric of the task (``accuracy`` or ``rmse``) an extra metric of the data, or a registered one.
        split: the split it is measured on.
        goal: ``max`` or ``min``. Defaults to the direction that the metric declares.
        percent: whether values are shown in percent. Defaults to what the metric declares.
        solved: the value from which a run counts as having solved its task.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    name: str
    split: str = "test"
    goal: Literal["max", "min"]
    percent: bool
    solved: float | None = None

    @model_validator(mode="before")
    @classmethod
    def _declared(cls, table: Any) -> Any:
        if not isinstance(table, dict) or not isinstance(table.get("name"), str) or {"goal", "percent"} <= table.keys():
            return table
        if table["name"] not in METRICS.names():
            near = "".join(f"; did you mean {name}?" for name in difflib.get_close_matches(table["name"], METRICS.names(), 1))
            raise ValueError(f"{table['name']!r} is not a known metric and needs goal and percent{near}")
        declared = METRICS.get(table["name"])
        return {"goal": declared.goal, "percent": declared.percent} | table

    @property
    def key(self) -> str:
        """The column of the metric, such as ``test_accuracy``."""
        return f"{self.split}_{self.name}"

    @property
    def sign(self) -> int:
        """1 if higher values are better, else -1."""
        return 1 if self.goal == "max" else -1

    @property
    def extreme(self) -> str:
        """``highest`` or ``lowest``, whichever value is the best."""
        return "highest" if self.goal == "max" else "lowest"

    def solves(self, value: float) -> bool:
        """Return whether a value reaches ``solved``."""
        return self.solved is not None and self.sign * value >= self.sign * self.solved


class RunConfig(BaseModel):
    """Everything that determines one training, and the labels it is reported under.

    Args:
        data: the dataset and its options.
        model: the model family and its options.
        training: optimizer, schedule and length.
        inputs: shape of one sample.
        outputs: outputs of the network.
        activation: spec of the activation.
        widths: pre-activation width of each hidden layer.
        seed: seed of the initial weights, the batches and the augmentation.
        split: number of the resampled split, for data that has several.
        trial: whether the run only chooses a hyper-parameter and never reads test rows.
        study, profile, metric, budget, stage, parameters: labels; they do not affect the result.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    LABELS: ClassVar = frozenset({"study", "profile", "metric", "budget", "stage", "parameters"})

    data: AnySource
    model: AnyFamily
    training: Recipe
    inputs: tuple[int, ...]
    outputs: int
    activation: str
    widths: tuple[int, ...]
    seed: int = 0
    split: int | None = None
    trial: bool = False
    arithmetic: int = ARITHMETIC
    study: str = ""
    profile: str | None = None
    metric: Metric
    parameters: int
    budget: int | None = None
    stage: str | None = None

    @property
    def depth(self) -> int:
        """Number of hidden layers."""
        return len(self.widths)

    @property
    def size(self) -> int:
        """The size that runs are grouped by: the parameter budget, or else the parameter count."""
        return self.parameters if self.budget is None else self.budget

    def replace(self, **changes: Any) -> RunConfig:
        """Return a copy with other values; ``training`` may be a mapping of changed options."""
        if isinstance(changes.get("training"), Mapping):
            options = self.training.model_dump(exclude_unset=True) | dict(changes["training"])
            changes["training"] = Recipe.model_validate(options)
        copy = self.model_copy(update=changes)
        copy.__dict__.pop("key", None)
        return copy

    def with_seeds(self, seeds: Iterable[int]) -> Iterator[RunConfig]:
        """Yield a copy for each seed. The configuration is dumped only once for all keys."""
        before, after = canonical(self.identity() | {"seed": "\0"}).split(canonical("\0"))
        for seed in seeds:
            copy = self.replace(seed=seed)
            copy.__dict__["key"] = _digest(f"{before}{seed}{after}")
            yield copy

    @cached_property
    def key(self) -> str:
        """Hash of everything that the result depends on."""
        return _digest(canonical(self.identity()))

    def identity(self) -> dict[str, JSON]:
        """Return what the result depends on, as JSON values.

        Options at their default are left out, so that a new option does not change the keys of old runs.
        """
        entries: dict[str, JSON] = self.model_dump(mode="json", exclude=set(self.LABELS) | {"data", "model", "training"})
        return entries | {name: options(getattr(self, name)) for name in ("data", "model", "training")}


def options(section: BaseModel) -> dict[str, JSON]:
    """Return the name of a section and its options that differ from their defaults.

    A section with a ``digest`` of its content leaves out the ``path`` and ``weights`` where that content is stored.
    """
    fields, values = type(section).model_fields, section.model_dump(mode="json")
    places = {"path", "weights"} if values.get("digest") else set()
    kept: dict[str, JSON] = {}
    for name, value in section:
        if name in places or (name != "name" and value == fields[name].get_default(call_default_factory=True)):
            continue
        kept[name] = options(value) if isinstance(value, BaseModel) else values[name]
    return kept


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:KEY_DIGITS]


def canonical(value: JSON) -> str:
    """Return the canonical JSON text of a value: sorted keys, no spaces, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


@dataclass(frozen=True)
class Result:
    """The result of a run: final metrics (NaN if diverged), one value per epoch, and the run's share of its cohort's time."""

    config: RunConfig
    state: State
    metrics: Mapping[str, float]
    history: Mapping[str, list[float]] = field(default_factory=dict)
    seconds: float = 0.0
    environment: Mapping[str, JSON] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """The key of the run."""
        return self.config.key


def job(configs: Sequence[RunConfig]) -> Job:
    """Load the data of runs of one shape and return the job that trains them together."""
    first, dataset = configs[0], load(configs[0].data)
    return Job(
        dataset=dataset,
        family=first.model,
        activation=first.activation,
        widths=first.widths,
        recipes=tuple(config.training for config in configs),
        seeds=tuple(config.seed for config in configs),
        resamples=tuple(dataset.resample(run.split) for run in configs if run.split is not None) if dataset.resample else (),
        trial=first.trial,
    )
