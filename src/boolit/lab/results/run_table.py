"""Many runs as columns: what runs share is kept once, and a record is made when one is asked for.

A million `Record` objects would take gigabytes and minutes; as columns they take some 200 MB. Reports read this form only, and
make one of a list of records at their door.
"""

from __future__ import annotations

import json
import math
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar, overload

import numpy as np

from boolit.lab.results.rows import Curves, DamagedError, load_metrics, unpack_curve, verify_row
from boolit.lab.runs import JSON, STATES, Record, RunConfig, canonical

Array = np.ndarray[Any, np.dtype[Any]]
History = Mapping[str, list[float]]
ReadHistory = Callable[[str], History]  # the curves of the run with a key
T = TypeVar("T")

_SEED = '"seed":'


class StoredCurves(Mapping[str, list[float]]):
    """The curves of one run in a store, read and verified when one is asked for; ``read`` gets their blobs."""

    def __init__(self, read: Callable[[], Curves]) -> None:
        self._read = read

    @cached_property
    def _blobs(self) -> Curves:
        return self._read()

    def __getitem__(self, metric: str) -> list[float]:
        return unpack_curve(self._blobs[metric])

    def __contains__(self, metric: object) -> bool:
        return metric in self._blobs

    def __iter__(self) -> Iterator[str]:
        return iter(self._blobs)

    def __len__(self) -> int:
        return len(self._blobs)


@dataclass(frozen=True, eq=False)
class RunTable(Sequence[Record]):
    """Records as columns; it is a sequence of records as well, each made when it is asked for.

    ``configs`` are shared by runs that differ in their seed only. ``columns`` have an entry per run: ``config``,
    ``environment``, ``names`` (of its metrics) and ``reader`` (of its curves) are places among what is shared; ``seed``,
    ``key`` (as bytes), ``finished`` and ``seconds`` are its own. ``metrics`` have NaN where a run has no such metric.

    Example:
        >>> from boolit.lab import Run
        >>> runs = [Run.from_dict({"activation": "relu", "seed": seed}) for seed in range(3)]
        >>> records = [Record(run.key, run.config, "finished", {"loss": run.config.seed / 2}) for run in runs]
        >>> table = RunTable.of(records)
        >>> len(table.configs), table.metrics["loss"].tolist(), table[2] == records[2]
        (1, [0.0, 0.5, 1.0], True)
    """

    configs: tuple[RunConfig, ...]
    environments: tuple[Mapping[str, JSON], ...]
    names: tuple[tuple[str, ...], ...]
    readers: tuple[ReadHistory, ...]
    columns: Mapping[str, Array]
    metrics: Mapping[str, Array]

    @staticmethod
    def of(records: Sequence[Record]) -> RunTable:
        """The table of some records; one that is a table already stays as it is."""
        if isinstance(records, RunTable):
            return records
        building = _Builder()
        for record in records:
            config = building.place_config(record.config)
            environment = building.place_environment(json.dumps(record.environment, sort_keys=True), record.environment)
            building.add(*config, record.key, record.state, record.metrics, environment, record.seconds)
        return building.finish({record.key: record.history for record in records}.__getitem__)

    @staticmethod
    def of_rows(rows: Iterable[tuple[tuple[Any, ...], Curves | None]], read: ReadHistory | None = None) -> RunTable:
        """The table of a store's rows, each verified; ``read`` gets curves later, or those of the rows are kept."""
        building, histories = _Builder(), dict[str, History]()
        for row, curves in rows:
            verify_row(row, curves)
            key, text, state, metrics, environment, seconds, *_ = row
            try:
                where = building.place_environment(environment)
                building.add(*building.parse_config(text), key, state, load_metrics(metrics), where, seconds)
                if curves:
                    histories[key] = {metric: unpack_curve(blob) for metric, blob in curves.items()}
            except (TypeError, ValueError, AttributeError, RecursionError) as error:
                raise DamagedError(f"run {key!r} cannot be read ({error})") from error
        return building.finish(read or (lambda key: histories.get(key, {})))

    @staticmethod
    def join(tables: Sequence[RunTable]) -> RunTable:
        """The runs of several tables, one after the other."""
        if len(tables) == 1:
            return tables[0]
        names = dict.fromkeys(name for table in tables for name in table.metrics)
        metrics = {name: np.concatenate([table.metric(name) for table in tables]) for name in names}
        columns = {name: np.concatenate([table.columns[name] for table in tables]) for name in _COLUMNS}
        counts = [len(table) for table in tables]
        for column, lists in _SHARED.items():
            before = np.cumsum([0, *(len(getattr(table, lists)) for table in tables[:-1])])
            columns[column] = columns[column] + np.repeat(before, counts)
        shared = {lists: tuple(one for table in tables for one in getattr(table, lists)) for lists in _SHARED.values()}
        return RunTable(**shared, columns=columns, metrics=metrics)

    def __len__(self) -> int:
        return len(self.columns["key"])

    @overload
    def __getitem__(self, place: int) -> Record: ...
    @overload
    def __getitem__(self, place: slice) -> RunTable: ...
    def __getitem__(self, place: int | slice) -> Record | RunTable:
        if isinstance(place, slice):
            return self.take(np.arange(len(self))[place])
        own = {name: column[place] for name, column in self.columns.items()}
        config, seed, key = self.configs[own["config"]], int(own["seed"]), own["key"].decode()
        return Record(
            key=key,
            config=config if config.seed == seed else config.replace(seed=seed),
            state="finished" if own["finished"] else "diverged",
            metrics={name: self.metrics[name][place].item() for name in self.names[own["names"]]},
            history=self.readers[own["reader"]](key),
            environment=self.environments[own["environment"]],
            seconds=own["seconds"].item(),
        )

    def metric(self, name: str) -> Array:
        """The values of a metric, NaN where a run has none."""
        found = self.metrics.get(name)
        return np.full(len(self), np.nan) if found is None else found

    def has_metric(self, name: str) -> Array:
        """Whether each run has a metric, be it NaN."""
        return np.array([name in names for names in self.names], bool)[self.columns["names"]]

    def finite_scores(self, name: str) -> Array:
        """Whether each run is finished, with a finite value of a metric."""
        found: Array = self.columns["finished"] & np.isfinite(self.metric(name))
        return found

    def take(self, rows: Array) -> RunTable:
        """The runs at some places, or where a mask is true."""
        return replace(
            self,
            columns={name: column[rows] for name, column in self.columns.items()},
            metrics={name: column[rows] for name, column in self.metrics.items()},
        )

    def shared_configs(self) -> list[RunConfig]:
        """The configurations of the runs without regard to their seeds, in the order in which runs first have them."""
        present, first = np.unique(self.columns["config"], return_index=True)
        return [self.configs[place] for place in present[np.argsort(first)].tolist()]

    def with_entries(self, **entries: Any) -> RunTable:
        """The same runs with other entries of their configurations."""
        return replace(self, configs=tuple(config.replace(**entries) for config in self.configs))

    def with_configs(self, configs: Mapping[str, RunConfig]) -> RunTable:
        """The runs whose keys are given, each with the configuration that is given for it."""
        own, building = self.with_keys(configs), _Builder()
        places = [building.place_config(configs[key.decode()])[0] for key in own.columns["key"].tolist()]
        columns = {**own.columns, "config": np.array(places, np.int64)}
        return replace(own, configs=building.configs, columns=columns)

    def rows_by(self, label: Callable[[RunConfig], T]) -> dict[T, Array]:
        """The places of runs by a label of their configurations, in the order of first appearance; seeds are not looked at.

        Example:
            >>> from boolit.lab import Run
            >>> runs = [Run.from_dict({"activation": spec, "seed": seed}) for seed in (0, 1) for spec in ("relu", "tanh")]
            >>> table = RunTable.of([Record(run.key, run.config, "finished", {}) for run in runs])
            >>> {spec: rows.tolist() for spec, rows in table.rows_by(lambda config: config.activation).items()}
            {'relu': [0, 2], 'tanh': [1, 3]}
        """
        places: dict[T, int] = {}
        present, first = np.unique(self.columns["config"], return_index=True)
        of_config = np.zeros(len(self.configs), np.intp)
        for config in present[np.argsort(first)].tolist():
            of_config[config] = places.setdefault(label(self.configs[config]), len(places))
        of_run = of_config[self.columns["config"]]
        ends = np.cumsum(np.bincount(of_run, minlength=len(places)))
        return dict(zip(places, np.split(np.argsort(of_run, kind="stable"), ends[:-1]), strict=False))

    def group_by(self, label: Callable[[RunConfig], T]) -> dict[T, RunTable]:
        """The runs by a label of their configurations."""
        return {name: self.take(rows) for name, rows in self.rows_by(label).items()}

    def where(self, keep: Callable[[RunConfig], bool]) -> RunTable:
        """The runs whose configuration is kept; its seed is not looked at."""
        kept = np.zeros(len(self.configs), bool)
        for config in np.unique(self.columns["config"]).tolist():  # of the runs that are here; others may lack what is asked
            kept[config] = keep(self.configs[config])
        return self.take(kept[self.columns["config"]])

    def without_repeats(self) -> RunTable:
        """The runs, each key once."""
        _, first = np.unique(self.columns["key"], return_index=True)
        return self if len(first) == len(self) else self.take(np.sort(first))

    def with_keys(self, keys: Iterable[str]) -> RunTable:
        """The runs with these keys."""
        return self.take(np.isin(self.columns["key"], np.array([key.encode() for key in keys], bytes)))

    def first_of_each(self, label: Callable[[RunConfig], T], most: int) -> RunTable:
        """Of each label at most so many runs, those with the first seeds; the order stays."""
        seeds, groups = self.columns["seed"], self.rows_by(label).values()
        if all(len(rows) <= most for rows in groups):
            return self
        chosen = [rows[np.argsort(seeds[rows], kind="stable")[:most]] for rows in groups]
        return self.take(np.sort(np.concatenate(chosen)))

    def sorted_by(self, order: Callable[[RunConfig], Any]) -> RunTable:
        """The runs by an order of their configurations, then by seed; of equals the order stays."""
        keys = [order(config) for config in self.configs]
        ranks = {key: rank for rank, key in enumerate(sorted(set(keys)))}
        of_run = np.array([ranks[key] for key in keys], np.intp)[self.columns["config"]]
        return self.take(np.lexsort((self.columns["seed"], of_run)))


_SHARED = {"config": "configs", "environment": "environments", "names": "names", "reader": "readers"}
_COLUMNS = (*_SHARED, "seed", "key", "finished", "seconds")


class _Builder:
    """Columns that grow by a run at a time; what many runs share is made once."""

    def __init__(self) -> None:
        self._configs: list[RunConfig] = []
        self._environments: list[Mapping[str, JSON]] = []
        self._places: dict[str | tuple[str, str], int] = {}  # of texts of environments, and of configurations around the seed
        self._names: dict[tuple[str, ...], int] = {}
        self._metrics: list[array[float]] = []  # of the runs with each tuple of names, one run after the other
        self._shapes: dict[tuple[Any, ...], tuple[int, RunConfig]] = {}
        self._has_own_seed: dict[tuple[str, str], bool] = {}
        self._placed: dict[str, array[int]] = {name: array("q") for name in ("config", "environment", "names")}
        self._seeds: list[int] = []
        self._keys: list[bytes] = []
        self._finished, self._seconds = bytearray(), array("d")

    def place_config(self, config: RunConfig) -> tuple[int, int]:
        """The place of a configuration, and its seed."""
        others = (value for name, value in config.__dict__.items() if name != "seed")
        # Copies of one configuration share their entries, which is seen faster than that equal ones are equal.
        shape = (*map(id, others), *map(id, (config.model_extra or {}).values()), frozenset(config.model_fields_set))
        found = self._shapes.get(shape)
        if found is None:
            place, _ = self.parse_config(canonical(config.to_dict()), config)
            found = self._shapes[shape] = place, config  # which must live as long as its entries stand for it
        return found[0], config.seed

    def parse_config(self, text: str, config: RunConfig | None = None) -> tuple[int, int]:
        """The place of a configuration, which is parsed once for all seeds unless it is given, and the seed."""
        before, seed, after = _split_at_seed(text)
        if seed is not None:
            own = self._has_own_seed.get((before, after))
            if own is None:
                own = self._has_own_seed[before, after] = all(
                    json.loads(f"{before}{number}{after}").get("seed") == number for number in (1, 2)
                )
            if not own:  # a brace in a string misled us
                before, seed, after = text, None, ""
        place = self._places.get((before, after))
        if place is None:
            self._configs.append(config or RunConfig.from_dict(json.loads(text)))
            place = self._places[before, after] = len(self._configs) - 1
        return place, self._configs[place].seed if seed is None else seed

    def place_environment(self, text: str, environment: Mapping[str, JSON] | None = None) -> int:
        """The place of an environment, which is parsed once unless it is given."""
        place = self._places.get(text)
        if place is None:
            self._environments.append(json.loads(text) if environment is None else environment)
            place = self._places[text] = len(self._environments) - 1
        return place

    def add(
        self,
        config: int,
        seed: int,
        key: str,
        state: str,
        metrics: Mapping[str, float],
        environment: int,
        seconds: float,
    ) -> None:
        if state not in STATES or not (math.isfinite(seconds) and seconds >= 0):
            raise ValueError(f"its state is {state!r} and its seconds are {seconds!r}")
        names = tuple(metrics)
        place = self._names.get(names)
        if place is None:
            place = self._names[names] = len(self._names)
            self._metrics.append(array("d"))
        self._metrics[place].extend(metrics.values())
        placed = self._placed
        placed["config"].append(config)
        placed["environment"].append(environment)
        placed["names"].append(place)
        self._seeds.append(seed)
        self._keys.append(key.encode())
        self._finished.append(state == "finished")
        self._seconds.append(seconds)

    @property
    def configs(self) -> tuple[RunConfig, ...]:
        return tuple(self._configs)

    def finish(self, read: ReadHistory) -> RunTable:
        small = all(-(2**63) <= seed < 2**63 for seed in (min(self._seeds, default=0), max(self._seeds, default=0)))
        columns: dict[str, Array] = {name: np.array(column, np.int64) for name, column in self._placed.items()}
        columns |= {
            "reader": np.zeros(len(self._keys), np.int64),
            "seed": np.array(self._seeds, np.int64 if small else object),
            "key": np.array(self._keys, bytes),
            "finished": np.array(self._finished, bool),
            "seconds": np.array(self._seconds, np.float64),
        }
        metrics = {name: np.full(len(self._keys), np.nan) for names in self._names for name in names}
        for (names, place), values in zip(self._names.items(), self._metrics, strict=True):
            rows = columns["names"] == place
            for name, column in zip(names, np.array(values).reshape(-1, max(1, len(names))).T, strict=False):
                metrics[name][rows] = column
        return RunTable(self.configs, tuple(self._environments), tuple(self._names), (read,), columns, metrics)


def _split_at_seed(text: str) -> tuple[str, int | None, str]:
    """A configuration's canonical text before and after the number of its own seed; None where it has none.

    Example:
        >>> _split_at_seed('{"data":{"seed":7},"seed":12,"study":"mine"}')
        ('{"data":{"seed":7},"seed":', 12, ',"study":"mine"}')
    """
    place = text.find(_SEED)
    while place >= 0:
        start = place + len(_SEED)
        # Its own key is within one brace; a quote within a string has a backslash before it.
        if text[place - 1] in "{," and text.count("{", 0, place) - text.count("}", 0, place) == 1:
            comma = text.find(",", start)
            end = len(text) - 1 if comma < 0 else comma
            number = text[start:end]
            if number.removeprefix("-").isdecimal():
                return text[:start], int(number), text[end:]
        place = text.find(_SEED, start)
    return text, None, ""
