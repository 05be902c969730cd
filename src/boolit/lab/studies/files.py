"""Study files: finding one, reading it, and applying a profile and overrides, with errors that name the line."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from boolit.errors import UserError
from boolit.lab.common.files import read_bounded
from boolit.lab.studies.overrides import (
    MOST_LEVELS,
    MOST_TEXT,
    Location,
    Tables,
    broken_limit,
    merge,
    parse_set,
    parse_toml,
    shorten,
)
from boolit.lab.studies.schema import Study
from boolit.lab.studies.validation_errors import first_error, line_numbers, line_of

SHIPPED = Path(__file__).parent / "definitions"
DEFAULT_PROFILE = "quick"
MOST_PROFILES = 100
_NAME = re.compile(r"[\w+-][\w+. -]{0,99}", re.ASCII)
_NAMES = "use up to 100 letters, digits, -, _, +, dots and blanks, and begin with none of the last two"


@dataclass(frozen=True)
class StudyFile:
    """A study as it is written: its ``name``, its ``path``, its ``tables``, and its ``text`` for the lines of errors.

    Example:
        >>> from boolit.lab import load_study
        >>> parity = load_study("parity")
        >>> parity.title, parity.profiles, parity.default_profile
        ('Parity of four logits with a network of 4 and 2 neurons', ['quick', 'paper'], 'quick')
        >>> parity.resolve("paper", seeds=5, sets=["training.epochs=20"]).study.training.epochs
        20
    """

    name: str
    path: Path
    text: str
    tables: Tables = field(repr=False)

    @property
    def profiles(self) -> list[str]:
        """The names of its profiles."""
        return list(self.tables.get("profiles", {}))

    @property
    def default_profile(self) -> str | None:
        """The profile it is run with unless one is asked for; None if it has no such profile and runs as it stands."""
        return DEFAULT_PROFILE if DEFAULT_PROFILE in self.profiles else None

    @property
    def title(self) -> str:
        """What it is about."""
        return str(self.tables.get("title", self.name))

    def resolve(
        self, profile: str | None = None, seeds: int | None = None, sets: Sequence[str] = (), hparams: Path | None = None
    ) -> ResolvedStudy:
        """The study with a profile, then a file ``hparams``, then ``sets`` and ``seeds`` applied, as its ``study``."""
        layers = [_Layer(str(self.path), {k: v for k, v in self.tables.items() if k != "profiles"}, self.text)]
        if profile is not None:
            layers.append(_Layer(str(self.path), self._profile(profile), self.text, ("profiles", profile)))
        if hparams is not None:
            text, tables = _read(hparams)
            layers.append(_Layer(str(hparams), tables, text))
        layers += [_Layer(f"--set {shorten(given)}", parse_set(given)[1]) for given in sets]
        if seeds is not None:
            layers.append(_Layer(f"--seeds {seeds}", {"sweep": {"seeds": seeds}}))
        return _validate(layers)

    def _profile(self, profile: str) -> Tables:
        profiles = self.tables.get("profiles", {})
        if profile not in profiles:
            known = ", ".join(profiles) or "none"
            raise UserError(f"the study {self.name} has no profile {profile!r}; it has {known}")
        chosen: Tables = profiles[profile]
        return chosen


@dataclass(frozen=True)
class _Layer:
    """Tables laid over earlier ones, and where they are written."""

    origin: str
    tables: Tables
    text: str | None = None
    within: tuple[str, ...] = ()

    def holds(self, location: Location) -> bool:
        """Whether this layer says something at a location or below it."""
        tables: Any = self.tables
        for part in location:
            if isinstance(tables, dict) and part in tables:
                tables = tables[str(part)]
            elif isinstance(tables, list) and isinstance(part, int) and part < len(tables):
                tables = tables[part]
            else:
                return False
        return True

    def where(self, location: Location) -> str:
        if self.text is None:
            return self.origin
        return f"{self.origin}:{line_of(line_numbers(self.text), (*self.within, *location))}"


@dataclass(frozen=True)
class ResolvedStudy:
    """A study as it is to be run, and where each part of it is written."""

    study: Study
    _layers: Sequence[_Layer]

    def error(self, location: Location, rule: str) -> UserError:
        """A mistake that only planning can see, with the line or the option that made it."""
        return _locate(self._layers, location, rule)


def _validate(layers: Sequence[_Layer]) -> ResolvedStudy:
    tables: Tables = {}
    for layer in layers:
        broken = broken_limit(layer.tables)
        if broken is not None:
            location, rule = broken
            raise _locate([layer], location, f"{'.'.join(map(str, location[:MOST_LEVELS]))}: {rule}")
        tables = merge(tables, layer.tables)
    try:
        study = Study.model_validate(tables)
    except ValidationError as error:
        raise _locate(layers, *first_error(error, tables)) from None
    except OSError as error:  # a path that names no file a source can read
        raise UserError(f"{error}; check the paths of the study") from None
    for spec in study.hparams:
        try:
            study.recipe(spec)
        except ValidationError as error:
            raise _locate(layers, *first_error(error, tables, ("hparams", spec))) from None
    return ResolvedStudy(study, layers)


def _locate(layers: Sequence[_Layer], location: Location, rule: str) -> UserError:
    """The error with the file and line, or the option, that said last what is wrong."""
    for length in range(len(location), -1, -1):
        for layer in reversed(layers):
            if layer.holds(location[:length]):
                return UserError(f"{layer.where(location)}: {rule}")
    return UserError(rule)


def load_study(name_or_path: str | Path) -> StudyFile:
    """The study with a name that ships with boolit, or of a TOML file; every profile is checked at once.

    Args:
        name_or_path: such as ``parity`` (`list_studies` has them all), or a file's path.

    Raises:
        UserError: if there is none, or for the first mistake in it, with its line.

    Example:
        >>> load_study("parity").profiles
        ['quick', 'paper']
    """
    path = _find_file(name_or_path)
    text, tables = _read(path)
    if not _NAME.fullmatch(path.stem):
        raise UserError(f"{str(path)!r} is no name for a study: results are kept under it; {_NAMES}")
    study = StudyFile(path.stem, path, text, tables)
    profiles = tables.get("profiles", {})
    if not isinstance(profiles, dict) or not all(isinstance(profile, dict) for profile in profiles.values()):
        where = f"{path}:{line_of(line_numbers(text), ('profiles',))}"
        raise UserError(f"{where}: profiles is a table of tables; write them as [profiles.quick]")
    for name in study.profiles:
        if not _NAME.fullmatch(name):
            where = f"{path}:{line_of(line_numbers(text), ('profiles', name))}"
            raise UserError(f"{where}: {shorten(repr(name))} is no name for a profile: results are kept under it; {_NAMES}")
    if len(study.profiles) > MOST_PROFILES:
        raise UserError(f"{path} has {len(study.profiles)} profiles; a study has at most {MOST_PROFILES}")
    for profile in [None, *study.profiles]:
        study.resolve(profile)
    return study


def list_studies() -> list[StudyFile]:
    """Every study that ships with boolit, by name.

    Example:
        >>> [study.name for study in list_studies() if study.name.startswith("parity")]
        ['parity', 'parity8']
    """
    return [load_study(path) for path in sorted(SHIPPED.glob("*.toml"))]


def _find_file(name_or_path: str | Path) -> Path:
    shipped = {path.stem: path for path in SHIPPED.glob("*.toml")}
    if str(name_or_path) in shipped:
        return shipped[str(name_or_path)]
    path = Path(name_or_path)
    try:
        if path.exists() or path.suffix == ".toml":
            return path
    except (OSError, ValueError) as error:  # too long for a file's name, or with a NUL in it
        raise UserError(f"{shorten(repr(str(path)))} is no path ({error}); give a .toml file") from None
    near: Iterable[str] = difflib.get_close_matches(str(name_or_path), shipped, n=2) or sorted(shipped)
    raise UserError(f"there is no study {str(name_or_path)!r}; give a .toml file, or one of {', '.join(near)}")


def _read(path: Path) -> tuple[str, Tables]:
    try:
        text = read_bounded(path, MOST_TEXT, "a study is a short text").decode().replace("\r\n", "\n")
    except FileNotFoundError:
        raise UserError(f"there is no file {path}; check the path") from None
    except UserError:
        raise
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read as text ({error}); give a TOML file") from None
    try:
        return text, parse_toml(text)
    except ValueError as error:
        line = re.search(r"line (\d+)", str(error))
        raise UserError(f"{path}:{line[1] if line else 1}: not TOML: {error}") from None
