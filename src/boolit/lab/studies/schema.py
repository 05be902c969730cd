"""What a study may say, and what it must."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

import boolit
from boolit.lab.datasets import Source, source
from boolit.lab.models import Family, family
from boolit.lab.runs import Metric
from boolit.lab.training import Recipe


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, (int, str)) else value


def _table(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError(f"a table with a name, not {value!r}")
    return value


def _check_spec(spec: str) -> str:
    boolit.activation(spec)
    return spec


def _check_distinct(values: list[Any]) -> list[Any]:
    repeated = next((value for value, count in Counter(values).items() if count > 1), None)
    if repeated is not None:
        raise ValueError(f"{repeated!r} is there twice; name each once")
    return values


MOST_ACTIVATIONS, MOST_SEEDS, MOST_SIZES = 1_000, 100_000, 1_000
WIDEST, DEEPEST, MOST_PARAMETERS = 2**24, 1_000, 10**12


def _check_count(value: Any) -> Any:
    if isinstance(value, list) and len(value) > MOST_ACTIVATIONS:
        raise ValueError(f"{len(value):,} activations are too many; name at most {MOST_ACTIVATIONS:,}")
    return value


Seeds = Annotated[int, Field(ge=1, le=MOST_SEEDS)]
Width = Annotated[int, Field(ge=1, le=WIDEST)]
Depth = Annotated[int, Field(ge=1, le=DEEPEST)]
Budget = Annotated[int, Field(ge=1, le=MOST_PARAMETERS)]
T = TypeVar("T")
Spec = Annotated[str, AfterValidator(_check_spec)]
Sizes = Annotated[
    list[T], BeforeValidator(_as_list), AfterValidator(_check_distinct), Field(min_length=1, max_length=MOST_SIZES)
]


class StudyTable(BaseModel):
    """A table of a study: a key it does not know is a mistake."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class Sweep(StudyTable):
    """What is varied: every activation at every size, with every seed.

    A size is a parameter budget (``params``) or pre-activation widths (``width``: one for all ``depth`` layers, or a list, one
    a layer). ``rounding`` says whether a width that an activation cannot take is an error or moved to the nearest it can.
    """

    activation: Annotated[
        list[Spec],
        BeforeValidator(_check_count),
        BeforeValidator(_as_list),
        AfterValidator(_check_distinct),
        Field(min_length=1),
    ]
    seeds: Seeds | Annotated[list[int], AfterValidator(_check_distinct), Field(min_length=1)]
    params: Sizes[Budget] | None = None
    width: (
        Annotated[
            list[Width | Annotated[list[Width], Field(min_length=1, max_length=DEEPEST)]],
            BeforeValidator(_as_list),
            Field(min_length=1, max_length=MOST_SIZES),
        ]
        | None
    ) = None
    depth: Sizes[Depth] = [1]
    rounding: Literal["exact", "nearest"] = "exact"

    @model_validator(mode="after")
    def _check_sizes(self) -> Sweep:
        if (self.params is None) == (self.width is None):
            raise ValueError("give either params (parameter budgets) or width (pre-activation widths)")
        if any(isinstance(width, list) for width in self.width or []) and "depth" in self.model_fields_set:
            raise ValueError("depth follows from a list of widths; leave it out")
        return self

    @property
    def seed_list(self) -> list[int]:
        """The seeds themselves: a number stands for that many, from 0."""
        return list(range(self.seeds)) if isinstance(self.seeds, int) else self.seeds


class Study(StudyTable):
    """A study as it is to be run: its file with a profile and all overrides applied."""

    title: str
    paper: str | None = None
    data: Annotated[Source, BeforeValidator(lambda value: source(_table(value)))]
    model: Annotated[Family, BeforeValidator(lambda value: family(_table(value)))]
    sweep: Sweep
    training: Recipe
    metric: Metric
    hparams: dict[Spec, dict[str, Any]] = {}
    keep_weights: bool = False

    def recipe(self, spec: str) -> Recipe:
        """How runs with an activation are trained: the study's recipe with that activation's own hyper-parameters."""
        return Recipe.model_validate(self.training.model_dump(exclude_unset=True) | self.hparams.get(spec, {}))
