"""A run and what it leaves: its configuration, which has the key, its metric, and its record."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal, TypeAlias, get_args

from pydantic import BaseModel, ConfigDict, Field, model_validator

JSON: TypeAlias = "bool | int | float | str | list[JSON] | tuple[JSON, ...] | Mapping[str, JSON] | None"
Goal: TypeAlias = Literal["max", "min"]
State: TypeAlias = Literal["finished", "diverged"]

KEY_DIGITS = 16
STATES: tuple[State, ...] = get_args(State)
LOWER_IS_BETTER = ("loss", "rmse")  # of all other metrics, higher is better


def canonical(config: Mapping[str, JSON]) -> str:
    """The one JSON text of a configuration: keys sorted, no spaces, no NaN.

    Example:
        >>> canonical({"seed": 1, "activation": "or_ail"})
        '{"activation":"or_ail","seed":1}'
    """
    try:
        return json.dumps(config, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ValueError(f"a run's configuration holds plain, finite JSON values only ({error}); convert them first") from None


def in_percent(metric: str) -> bool:
    """Whether a metric is shown in percent: accuracies and other fractions are, losses and errors are not."""
    return not metric.endswith(LOWER_IS_BETTER)


class Metric(BaseModel):
    """What runs are compared by; ``solved`` is the value from which a run has solved its task, where there is one.

    ``name`` is ``loss``, the metric of the task (``accuracy`` or ``rmse``), or one of the data's extra metrics (``auc``);
    ``split`` is where it is measured; ``goal`` is ``max``, or ``min`` for losses and errors, unless given.

    Example:
        >>> Metric(name="rmse").key, Metric(name="rmse").goal
        ('test_rmse', 'min')
        >>> accuracy = Metric(name="accuracy", solved=0.99)
        >>> accuracy.percent, accuracy.solves(0.995), accuracy.merit(0.9) > accuracy.merit(float("nan"))
        (True, True, True)
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    name: Annotated[str, Field(min_length=1)]
    split: str = "test"
    goal: Goal = "max"
    solved: float | None = None

    @model_validator(mode="before")
    @classmethod
    def _default_goal(cls, table: Any) -> Any:
        if isinstance(table, dict) and table.get("goal") is None:
            return {**table, "goal": "min" if table.get("name") in LOWER_IS_BETTER else "max"}
        return table

    @property
    def key(self) -> str:
        """Its name among a record's metrics."""
        return f"{self.split}_{self.name}"

    @property
    def percent(self) -> bool:
        """Whether it is shown in percent."""
        return in_percent(self.name)

    def merit(self, value: float) -> float:
        """A number that is larger the better ``value`` is; NaN is the worst."""
        return -math.inf if math.isnan(value) else value if self.goal == "max" else -value

    def solves(self, value: float) -> bool:
        """Whether a value is as good as ``solved``."""
        return self.solved is not None and not math.isnan(value) and self.merit(value) >= self.merit(self.solved)


class RunConfig(BaseModel):
    """Everything a run was asked for by. It alone knows what is part of the run's key.

    ``study`` and ``profile`` say who asked. ``data``, ``model`` and ``training`` are tables of a name and of options that are
    not at their defaults; ``inputs`` is the shape of a sample, ``outputs`` how many numbers the network answers with; ``width``
    has one entry for each of its ``depth`` hidden layers before the ``activation``, ``parameters`` is what it has and
    ``budget`` what it may have. ``metric`` is what runs are compared by, ``arithmetic`` the version of the numerics, ``seed``
    the run's own. ``split`` is the number of the run's own rows, where its data has several; a run with ``trial`` only
    chooses, ``search`` says in which search. Entries that this version does not know are kept as they are.

    Example:
        >>> config = RunConfig.from_dict({"activation": "relu", "seed": 1, "study": "mine"})
        >>> config.identity(), config.key == config.replace(study="yours").key != config.replace(seed=2).key
        ({'activation': 'relu', 'seed': 1}, True)
        >>> config.to_dict(), RunConfig.options(Metric(name="accuracy", split="valid"))
        ({'study': 'mine', 'activation': 'relu', 'seed': 1}, {'name': 'accuracy', 'split': 'valid'})
    """

    model_config = ConfigDict(extra="allow", frozen=True, strict=True)

    # What is not part of a key: who asked for a run and how it is compared, and the place of data whose digest is.
    LABELS: ClassVar = ("study", "profile", "metric", "search", "budget")
    PLACES: ClassVar = ("path", "weights")

    study: str = ""
    profile: str | None = None
    data: dict[str, Any] = {}
    model: dict[str, Any] = {}
    inputs: list[int] = []
    outputs: int = 0
    activation: str = ""
    width: list[int] = []
    depth: int = 0
    parameters: int = 0
    budget: int | None = None
    training: dict[str, Any] = {}
    metric: Metric | None = None
    arithmetic: int = 1
    seed: int = 0
    split: int | None = None
    trial: bool = False
    search: str | None = None

    @staticmethod
    def from_dict(entries: Mapping[str, Any]) -> RunConfig:
        """The configuration with these entries; those that are left out stay out of `to_dict` and of the key."""
        return RunConfig.model_validate(dict(entries))

    def to_dict(self) -> dict[str, JSON]:
        """The entries it was made from, as plain JSON values."""
        entries: dict[str, JSON] = {name: value for name, value in self if name in self.model_fields_set}
        return entries | {"metric": self.metric.model_dump(exclude_none=True)} if self.metric else entries

    def replace(self, training: Mapping[str, Any] | None = None, **changes: Any) -> RunConfig:
        """A copy with other entries; the options of ``training`` are laid over the present ones."""
        merged = {} if training is None else {"training": {**self.training, **training}}
        return self.model_copy(update=changes | merged)

    def identity(self) -> dict[str, JSON]:
        """What the result depends on: everything but ``LABELS``, and without the place of data that has a digest.

        Example:
            >>> RunConfig.from_dict({"data": {"name": "table", "path": "a.csv", "digest": "5f"}, "seed": 1}).identity()
            {'data': {'name': 'table', 'digest': '5f'}, 'seed': 1}
        """
        kept = {name: value for name, value in self.to_dict().items() if name not in self.LABELS}
        return kept | {"data": self._without_place(kept["data"])} if "data" in kept else kept

    @classmethod
    def _without_place(cls, data: JSON) -> JSON:
        if not isinstance(data, Mapping):
            return data
        hidden = cls.PLACES if "digest" in data else ()
        return {name: cls._without_place(value) for name, value in data.items() if name not in hidden}

    @property
    def key(self) -> str:
        """64 bits of the hash of `identity`; a store may hold millions of runs without a clash."""
        return hashlib.sha256(canonical(self.identity()).encode()).hexdigest()[:KEY_DIGITS]

    @staticmethod
    def options(table: BaseModel) -> dict[str, Any]:
        """What a configuration says of data, a model or a recipe: its name, and the options that are not at their default.

        So an option that is added later changes no key. (Where a default changes, ``arithmetic`` must.)
        """
        fields, plain, found = type(table).model_fields, table.model_dump(mode="json"), {}
        for name, own in table:
            if name == "name" or own != fields[name].get_default(call_default_factory=True):
                found[name] = RunConfig.options(own) if isinstance(own, BaseModel) else plain[name]
        return found


@dataclass(frozen=True, eq=False)
class Run:
    """One training, fully determined by its configuration ``config``: two runs are equal if their keys are.

    So studies that share a run train it once.

    Example:
        >>> one, same = Run.from_dict({"activation": "relu", "seed": 1}), Run.from_dict({"seed": 1, "activation": "relu"})
        >>> one == same, one.key
        (True, '8dc0a8f946075546')
    """

    config: RunConfig

    @staticmethod
    def from_dict(entries: Mapping[str, Any]) -> Run:
        """The run of a configuration's entries."""
        return Run(RunConfig.from_dict(entries))

    @cached_property
    def key(self) -> str:
        """What the store knows the run by; equal trainings have equal keys, in whatever order they were written."""
        return self.config.key

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Run) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


@dataclass(frozen=True)
class Record:
    """What a run left: its final metrics, its curves, and where and how long it was trained.

    ``key`` and ``config`` are the run's; ``state`` is ``finished`` or ``diverged``; ``metrics`` are by name, such as
    ``test_accuracy``; ``history`` has one number per epoch of each; ``environment`` is what else the numbers may depend on;
    ``seconds`` is its share of its cohort's time. A metric that is not a number or infinite (a diverged run has some) is
    allowed and is kept as it is.

    Example:
        >>> run = Run.from_dict({"activation": "relu", "seed": 1})
        >>> record = Record(run.key, run.config, "finished", {"test_accuracy": 0.93}, {"test_accuracy": [0.51, 0.93]})
        >>> record.config.activation, record.metrics["test_accuracy"], max(record.history["test_accuracy"])
        ('relu', 0.93, 0.93)
    """

    key: str
    config: RunConfig
    state: State
    metrics: Mapping[str, float]
    history: Mapping[str, list[float]] = field(default_factory=dict)
    environment: Mapping[str, JSON] = field(default_factory=dict)
    seconds: float = 0.0

    def __post_init__(self) -> None:
        if self.state not in STATES:
            raise ValueError(f"a record's state is one of {', '.join(STATES)}, not {self.state!r}")
        if not (math.isfinite(self.seconds) and self.seconds >= 0):
            raise ValueError(f"a record's seconds are finite and at least 0, not {self.seconds!r}")
