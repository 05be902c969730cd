"""A study: its schema, and how it is read from a TOML file with a profile and overrides."""

from __future__ import annotations

import difflib
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

import boolit
from boolit.errors import UserError
from boolit.lab.datasets import AnySource, source_type
from boolit.lab.models import AnyFamily, Family, family_type
from boolit.lab.runs import Metric
from boolit.lab.training import Recipe
from boolit.lab.training.recipe import OPTIMIZERS

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SIZES = ("params", "outputs", "flops", "width")  # of which a sweep has one
SHIPPED = Path(__file__).parent / "definitions"
T = TypeVar("T")
Location: TypeAlias = tuple[str, ...]
Fail: TypeAlias = Callable[[str, str], UserError]
_BARE_WORD = re.compile(r"[A-Za-z_][\w+.-]*")


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, int | str) else value


def _distinct(values: list[T]) -> list[T]:
    repeated = [value for value, count in Counter(values).items() if count > 1]
    if repeated:
        raise ValueError(f"{repeated[0]!r} is listed twice")
    return values


def _known_spec(spec: str) -> str:
    boolit.activation(spec)
    return spec


Spec = Annotated[str, AfterValidator(_known_spec)]
Width = Annotated[int, Field(ge=1, le=2**24)]
Widths = Annotated[list[Width | Annotated[list[Width], Field(min_length=1)]], BeforeValidator(_as_list), Field(min_length=1)]
Distinct = Annotated[list[T], BeforeValidator(_as_list), AfterValidator(_distinct), Field(min_length=1, max_length=1000)]


class Section(BaseModel):
    """A table of a study. Unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class Sweep(Section):
    """What a study varies: every activation at every size with every seed.

    Args:
        activation: specs of the activations.
        seeds: the number of seeds, or a list of them.
        params: parameter budgets. Each activation gets the width whose parameter count is nearest.
        outputs: features after the activation of every hidden layer.
        flops: operations of a forward pass on one sample, for convolutional networks; those of perceptrons repeat ``params``.
        step_time: time of a training step as a multiple of ReLU's at ``params``, which is then one number. Widths are found by
            measurement, unless ``[hparams]`` has them.
        timed: whether a dry run measures the time of a step, too.
        width: pre-activation widths: a number for all ``depth`` layers, or a list with one number per layer.
        depth: numbers of hidden layers.
        rounding: whether a width that an activation cannot take is an error (``exact``) or rounded (``nearest``).
    """

    activation: Distinct[Spec]
    seeds: Annotated[int, Field(ge=1, le=100_000)] | Annotated[list[int], AfterValidator(_distinct), Field(min_length=1)]
    params: Distinct[Annotated[int, Field(ge=1, le=10**12)]] | None = None
    outputs: Distinct[Width] | None = None
    flops: Distinct[Annotated[int, Field(ge=1, le=10**15)]] | None = None
    step_time: Annotated[float, Field(gt=0, le=1000)] | None = None
    timed: bool = False
    width: Widths | None = None
    depth: Distinct[Annotated[int, Field(ge=1, le=1000)]] = [1]
    rounding: Literal["exact", "nearest"] = "exact"

    @model_validator(mode="after")
    def _one_kind_of_size(self) -> Sweep:
        if sum(getattr(self, name) is not None for name in SIZES) != 1:
            raise ValueError(f"give one of {', '.join(SIZES)}")
        if self.step_time is not None and (len(self.params or []) != 1 or len(self.depth) != 1):
            raise ValueError("step_time needs one number of params, at which ReLU is timed, and one depth")
        if any(isinstance(width, list) for width in self.width or []) and "depth" in self.model_fields_set:
            raise ValueError("depth follows from a list of widths; remove it")
        return self

    @property
    def seed_list(self) -> list[int]:
        """The seeds: 0 to n - 1 if a number is given."""
        return list(range(self.seeds)) if isinstance(self.seeds, int) else self.seeds


class Study(Section):
    """A study with its profile and all overrides applied."""

    title: str
    paper: str | None = None
    data: AnySource
    model: AnyFamily
    sweep: Sweep
    training: Recipe
    metric: Metric
    hparams: dict[Spec, dict[str, Any]] = {}
    search: dict[str, Annotated[list[float], Field(min_length=2, max_length=2)]] = {}
    keep_weights: bool = False

    def tuned(self, spec: str) -> Study:
        """Return the study with an activation's own hyper-parameters in its training, model and width."""
        training, of_model, width = sort_setting(self.hparams.get(spec, {}), self.model, self.training)
        model = type(self.model).model_validate(self.model.model_dump() | of_model) if of_model else self.model
        size = {**dict.fromkeys(SIZES), "width": [width], "rounding": "nearest"}
        sweep = self.sweep if width is None else self.sweep.model_copy(update=size)
        recipe = Recipe.model_validate(self.training.model_dump(exclude_unset=True) | training)
        return self.model_copy(update={"model": model, "sweep": sweep, "training": recipe})


def sort_setting(
    setting: Mapping[str, Any], model: Family, recipe: Recipe
) -> tuple[dict[str, Any], dict[str, Any], int | None]:
    """Return the hyper-parameters that belong to ``[training]``, those of the model, and the width."""
    of_optimizer = {name: value for name, value in setting.items() if name in OPTIMIZERS.get(recipe.optimizer).options}
    of_model = {name: value for name, value in setting.items() if name in type(model).model_fields}
    training = {name: value for name, value in setting.items() if name not in {*of_optimizer, *of_model, "width"}}
    options = {"options": {**recipe.options, **of_optimizer}} if of_optimizer else {}
    return training | options, of_model, setting.get("width")


@dataclass(frozen=True)
class StudyFile:
    """A study as written in its file."""

    name: str
    path: Path
    tables: dict[str, Any] = field(repr=False)

    @property
    def profiles(self) -> list[str]:
        """The names of the profiles."""
        return list(self.tables.get("profiles", {}))

    def resolve(
        self, profile: str | None = None, seeds: int | None = None, sets: Sequence[str] = (), hparams: Path | None = None
    ) -> tuple[Study, Fail]:
        """Apply a profile, hyper-parameters, ``--set`` changes and seeds, and return a function for errors in keys as well."""
        origin = self.path.name if self.path.parent == SHIPPED else str(self.path)
        layers = [(origin, {name: table for name, table in self.tables.items() if name != "profiles"})]
        if profile is not None:
            if profile not in self.profiles:
                raise UserError(f"{self.name} has no profile {profile!r}; it has {', '.join(self.profiles) or 'none'}")
            layers.append((f"{origin}: profiles.{profile}", self.tables["profiles"][profile]))
        if hparams is not None:
            layers.append((str(hparams), _read(hparams)))
        layers += [(f"--set {text[:200]}", parse_set(text)) for text in sets]
        if seeds is not None:
            layers.append((f"--seeds {seeds}", {"sweep": {"seeds": seeds}}))
        return _validate(layers)


def load_study(name_or_path: str | Path) -> StudyFile:
    """Load a study that ships with boolit, by name, or from a TOML file, and check all of its profiles."""
    path = _find(name_or_path)
    file = StudyFile(path.stem, path, _read(path))
    profiles = file.tables.get("profiles", {})
    if not isinstance(profiles, dict) or not all(isinstance(profile, dict) for profile in profiles.values()):
        raise UserError(f"{path}: profiles: write each profile as a table, such as [profiles.quick]")
    for profile in (None, *profiles):
        file.resolve(profile)
    return file


def _find(name_or_path: str | Path) -> Path:
    shipped = {path.stem: path for path in SHIPPED.glob("*.toml")}
    if str(name_or_path) in shipped:
        return shipped[str(name_or_path)]
    path = Path(name_or_path)
    if path.suffix == ".toml":
        return path
    near = difflib.get_close_matches(str(name_or_path), shipped, n=2) or sorted(shipped)
    raise UserError(f"there is no study {str(name_or_path)!r}; give a .toml file or one of {', '.join(near)}")


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is not valid TOML: {error}") from None


def parse_set(text: str) -> dict[str, Any]:
    """Parse ``key=value`` with a dotted key into nested tables. The value is TOML or a bare word."""
    key, _, value = text.partition("=")
    parts = [part.strip().strip("\"'") for part in key.split(".")]
    value = value.strip()
    if not value or not all(parts):
        raise UserError(f"--set {text[:200]}: write key=value with a dotted key, such as training.epochs=20")
    try:
        tables: Any = tomllib.loads(f"value = {value}")["value"]
    except (ValueError, RecursionError):
        if not _BARE_WORD.fullmatch(value):
            raise UserError(f"--set {text[:200]}: the value is not TOML; quote strings and put lists in brackets") from None
        tables = value
    for part in reversed(parts):
        tables = {part: tables}
    return dict(tables)


def merge(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Merge nested tables. A ``width`` replaces ``params`` and the other way round, and so do all kinds of sizes."""
    sized = {name for name in SIZES if name in changes}
    dropped = {name for name in SIZES if sized and name not in changes}
    dropped |= {"step_time"} if sized - {"params"} and "step_time" not in changes else set()
    merged = {name: value for name, value in base.items() if name not in dropped}
    for name, value in changes.items():
        before = merged.get(name)
        merged[name] = merge(before, value) if isinstance(before, Mapping) and isinstance(value, Mapping) else value
    return merged


def _validate(layers: Sequence[tuple[str, dict[str, Any]]]) -> tuple[Study, Fail]:
    tables: dict[str, Any] = {}
    origins: dict[Location, str] = {}
    for origin, changes in layers:
        tables = merge(tables, changes)
        origins |= {(): layers[0][0], **dict.fromkeys(_locations(changes), origin)}
    location: Location = ()
    try:
        study = Study.model_validate(tables)
        for spec in study.hparams:
            location = ("hparams", spec)
            study.tuned(spec)
    except ValidationError as error:
        raise _error(origins, *_first_mistake(error, tables, location)) from None
    except OSError as error:
        raise UserError(f"{layers[0][0]}: {error}") from None
    return study, lambda key, rule: _error(origins, tuple(key.split(".")), rule)


def _locations(tables: Mapping[str, Any], above: Location = ()) -> Iterator[Location]:
    for name, value in tables.items():
        yield (*above, name)
        if isinstance(value, Mapping):
            yield from _locations(value, (*above, name))


def _error(origins: Mapping[Location, str], location: Location, rule: str) -> UserError:
    known = next(location[:length] for length in range(len(location), -1, -1) if location[:length] in origins)
    return UserError(": ".join(filter(None, (origins[known], ".".join(location), rule))))


def _first_mistake(error: ValidationError, tables: Mapping[str, Any], above: Location) -> tuple[Location, str]:
    # A value that fits no member of a union has one entry per member. The entry that got furthest says most.
    telling = ("extra_forbidden", "too_short", "too_long")
    details = max(error.errors(), key=lambda entry: (entry["type"] in telling, len(entry["loc"])))
    location, inside = above, {} if above else tables
    for part in details["loc"]:  # pydantic also names the members of unions: keep what is in the file
        if isinstance(inside, Mapping) and isinstance(part, str):
            location, inside = (*location, part), inside.get(part, {})
    if details["type"] == "missing":
        return location, "is missing"
    if details["type"] == "extra_forbidden":
        return location, f"is not a known key; {_known_keys(location, tables)}"
    message = details["msg"].removeprefix("Value error, ")
    if details["type"] == "value_error":
        return location, message
    return location, f"{message.replace('Input should', 'it should', 1)}, not {repr(details['input'])[:200]}"


def _known_keys(location: Location, tables: Mapping[str, Any]) -> str:
    *above, key = location
    kind: type[BaseModel] = Study
    if above[:1] in (["data"], ["model"]):
        table = tables[above[0]][above[1]] if above[1:] else tables[above[0]]
        kind = source_type(table["name"]) if above[0] == "data" else family_type(table["name"])
    elif above:
        sections: dict[str, type[BaseModel]] = {"sweep": Sweep, "metric": Metric}
        kind = sections.get(above[0], Recipe)
    near = difflib.get_close_matches(key, kind.model_fields, n=1)
    return f"did you mean {near[0]}?" if near else f"the keys here are {', '.join(kind.model_fields)}"
