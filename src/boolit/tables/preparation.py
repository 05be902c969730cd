"""Turn the columns of a table into features: recognize numbers and dates, fill gaps, encode categories."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.compose import ColumnTransformer
from sklearn.impute import MissingIndicator, SimpleImputer
from sklearn.preprocessing import OneHotEncoder
from sklearn.utils.validation import check_is_fitted

from boolit.errors import UserError
from boolit.tables.read import check_columns

Kind: TypeAlias = Literal["number", "flag", "date", "category", "empty"]
Floats: TypeAlias = npt.NDArray[np.float64]

MISSING_WORDS = frozenset(("", "?", "NA", "N/A", "#N/A", "n/a", "NaN", "nan", "NULL", "null", "None", "<NA>", "NaT"))
TRUTHS = {**dict.fromkeys(("true", "yes", "t", "y", "1"), 1.0), **dict.fromkeys(("false", "no", "f", "n", "0"), 0.0)}
MISSING_CATEGORY = "(missing)"
MOSTLY = 0.95  # a column is numeric if this share of its values are numbers; the others are read as missing
SHOWN_TEXTS, TEXT_LENGTH = 5, 40

# How numbers are written, in the order of trying: as Python writes them, with symbols and thousands separators, with commas.
_SYMBOLS = r"[\s'’$€£¥₹%]|USD|EUR|GBP|CHF"
_POINT = r"[+-]?(\d{1,3}(,\d{3})+|\d+)?(\.\d*)?([eE][+-]?\d+)?"
_COMMA = r"[+-]?(\d{1,3}(\.\d{3})+|\d+)?(,\d*)?([eE][+-]?\d+)?"
NUMBER_STYLES = {"plain": "", "point": "a decimal point, without signs and separators", "comma": "a decimal comma"}

_DAYS = {
    "%d/%m/%Y": "day/month/year",
    "%m/%d/%Y": "month/day/year",
    "%d.%m.%Y": "day.month.year",
    "%d-%m-%Y": "day-month-year",
    "%Y/%m/%d": "year/month/day",
}
DATE_FORMATS = {"ISO8601": ""} | {day + time: words for day, words in _DAYS.items() for time in ("", " %H:%M", " %H:%M:%S")}
DATE_PARTS = ("day", "month", "weekday", "hour")


class TablePreparation(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Encode the columns of a DataFrame as numeric features.

    Columns are recognized as numbers (also with decimal commas, currency signs or thousands separators), flags, dates or
    categories. Gaps in numbers are filled with the median and marked by an indicator; dates become day, month, weekday and
    hour; categories become one feature each, with one for all infrequent ones. Features are not standardized:
    `boolit.sklearn` does that in the network.

    Args:
        levels: the maximum number of features of a category column, besides the one for infrequent categories.

    Attributes:
        kinds_: the kind of every column: ``number``, ``flag``, ``date`` or ``category``.
        notes_: what was assumed while reading the columns, one sentence each.
        n_numbers_: number of leading features that are numbers, flags or parts of dates.
        scaled_: which features should be standardized; flags, indicators and categories stay 0 and 1.

    Example:
        >>> table = pd.DataFrame({"price": ["$1,200", "$950", None], "sold": ["31/12/2024", "05/01/2025", "17/01/2025"]})
        >>> preparation = TablePreparation().fit(table)
        >>> preparation.kinds_
        {'price': 'number', 'sold': 'date'}
        >>> preparation.transform(table)[:, 0].tolist()
        [1200.0, 950.0, 1075.0]
    """

    def __init__(self, levels: int = 20) -> None:
        self.levels = levels

    def fit(self, X: Any, y: object = None) -> TablePreparation:  # noqa: ARG002
        """Recognize the columns of a DataFrame and fit medians and categories."""
        frame = as_frame(X)
        self.feature_names_in_ = np.array([str(name) for name in frame.columns], dtype=object)
        self.n_features_in_ = len(self.feature_names_in_)
        self.kinds_: dict[str, Kind] = {}
        self.formats_: dict[str, str] = {}
        self.lenient_: list[str] = []
        self.notes_: list[str] = []
        for name in self.feature_names_in_:
            column = recognize(name, frame[name])
            self.kinds_[name], self.formats_[name] = column.kind, column.format
            self.notes_ += column.notes
            self.lenient_ += [name] * column.lenient
        parsed = self._parse(frame)
        numbers = [str(name) for name in parsed if parsed[name].dtype == np.float64]
        gaps = [name for name in numbers if parsed[name].isna().any() and not _is_later_part(name, self.kinds_)]
        categories = [name for name in parsed if name not in numbers]
        encoder = OneHotEncoder(max_categories=self.levels + 1, handle_unknown="infrequent_if_exist", sparse_output=False)
        steps = [
            ("numbers", SimpleImputer(strategy="median", keep_empty_features=True), numbers),
            ("gaps", MissingIndicator(features="all"), gaps),
            ("categories", encoder, categories),
        ]
        self.transformer_ = ColumnTransformer([step for step in steps if step[2]], sparse_threshold=0.0)
        self.transformer_.fit(parsed)
        self.n_numbers_ = len(numbers)
        self.scaled_ = np.zeros(len(self.get_feature_names_out()), dtype=bool)
        self.scaled_[: len(numbers)] = [self.kinds_.get(name) != "flag" and not _is_binary(parsed[name]) for name in numbers]
        return self

    def transform(self, X: Any) -> Floats:
        """Return the features ``(rows, features)`` of a DataFrame with the columns seen in `fit`."""
        return self._features(X)[0]

    def transform_with_gaps(self, X: Any) -> Floats:
        """Return the features with NaN instead of the median where a number is missing."""
        features, parsed = self._features(X)
        if self.n_numbers_:
            _, _, names = self.transformer_.transformers_[0]
            features[:, : self.n_numbers_][parsed[names].isna().to_numpy()] = np.nan
        return features

    def with_medians(self, medians: Floats) -> TablePreparation:
        """Return a copy that fills gaps in numbers with other values, ``(n_numbers_,)``."""
        other = copy.deepcopy(self)
        if self.n_numbers_:
            other.transformer_.named_transformers_["numbers"].statistics_ = np.array(medians, dtype=np.float64)
        return other

    def get_feature_names_out(self, input_features: object = None) -> npt.NDArray[Any]:  # noqa: ARG002
        """Return the names of the features, such as ``gaps__price`` or ``categories__color_red``."""
        check_is_fitted(self)
        names: npt.NDArray[Any] = self.transformer_.get_feature_names_out()
        return names

    def unknown_categories(self, X: Any) -> dict[str, tuple[int, list[str]]]:
        """Return, by column, how many rows have a category that was not seen in `fit`, and a few of these categories."""
        frame, unknown = as_frame(X, self.feature_names_in_), {}
        names = [name for name, kind in self.kinds_.items() if kind == "category"]
        known = self.transformer_.named_transformers_["categories"].categories_ if names else []
        for name, categories in zip(names, known, strict=True):
            counts = as_text(frame[name]).value_counts()
            counts = counts[~counts.index.isin(categories)]
            if len(counts):
                unknown[name] = (int(counts.sum()), [str(text)[:TEXT_LENGTH] for text in counts.index[:SHOWN_TEXTS]])
        return unknown

    def _features(self, table: Any) -> tuple[Floats, pd.DataFrame]:
        check_is_fitted(self)
        parsed = self._parse(as_frame(table, self.feature_names_in_))
        features: Floats = np.asarray(self.transformer_.transform(parsed), dtype=np.float64)
        return features, parsed

    def _parse(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Return numbers and parts of dates as float64 columns, and categories as text."""
        columns: dict[str, Any] = {}
        for name, kind in self.kinds_.items():
            if kind == "category":
                columns[name] = as_text(frame[name]).fillna(MISSING_CATEGORY).astype(object)
                continue
            values = parse(frame[name], kind, self.formats_[name])
            if name not in self.lenient_:
                _check_parsed(name, kind, frame[name], values)
            if kind == "date":
                columns |= dict(date_parts(name, values))
            else:
                columns[name] = values
        return pd.DataFrame(columns, index=frame.index)


class RecognizedColumn(NamedTuple):
    """The kind of a column, how its values are written, notes, and whether other values are read as missing."""

    kind: Kind
    format: str = ""
    notes: tuple[str, ...] = ()
    lenient: bool = False


def recognize(name: str, values: pd.Series[Any]) -> RecognizedColumn:
    """Find out what a column holds, such as dates in the format ``%d/%m/%Y``."""
    values = values.infer_objects()
    if values.isna().all():
        return RecognizedColumn("empty")
    if pd.api.types.is_bool_dtype(values.dtype):
        return RecognizedColumn("flag")
    if pd.api.types.is_numeric_dtype(values.dtype):
        return RecognizedColumn("number" if np.isfinite(values.to_numpy(np.float64, na_value=np.nan)).any() else "empty")
    if pd.api.types.is_datetime64_any_dtype(values.dtype):
        return RecognizedColumn("date", "ISO8601")
    if (plain := _plain_numbers(values)) is not None:
        return RecognizedColumn("empty" if np.isnan(plain).all() else "number", "plain")
    counts = as_text(values).value_counts()
    known = pd.Series(counts.index, dtype=object)
    if known.empty:
        return RecognizedColumn("empty")
    if known.str.lower().isin(TRUTHS).all() and not known.isin(("0", "1")).all():
        return RecognizedColumn("flag")
    readers: dict[Kind, tuple[dict[str, str], Callable[[pd.Series[Any], str], pd.Series[Any]]]] = {
        "number": (NUMBER_STYLES, _parse_numbers),
        "date": (DATE_FORMATS, _parse_dates),
    }
    for kind, (formats, reader) in readers.items():
        for style, words in formats.items():
            failed = reader(known, style).isna().to_numpy()
            share = counts.to_numpy()[~failed].sum() / counts.sum()
            if share < MOSTLY or (failed.any() and failed.sum() >= (~failed).sum()):
                continue
            notes = [f"column {name!r} is read as {kind}s with {words}"] if kind == "number" and words else []
            notes += [f"column {name!r} is read as dates written {words}"] if kind == "date" and words else []
            if failed.any():
                shown = ", ".join(repr(text[:TEXT_LENGTH]) for text in known[failed][:SHOWN_TEXTS])
                notes.append(f"column {name!r} has {counts.to_numpy()[failed].sum()} values that are not {kind}s ({shown}): "
                             "they are read as missing")  # fmt: skip
            return RecognizedColumn(kind, style, tuple(notes), bool(failed.any()))
    return RecognizedColumn("category")


def parse(values: pd.Series[Any], kind: Kind, style: str) -> Floats:
    """Return a column of numbers, flags or dates (as days since 1970) as floats, NaN where missing or not readable."""
    values = values.infer_objects()
    if pd.api.types.is_datetime64_any_dtype(values.dtype) or kind == "date":
        return _days(values if pd.api.types.is_datetime64_any_dtype(values.dtype) else _by_text(values, _parse_dates, style))
    if pd.api.types.is_numeric_dtype(values.dtype) or pd.api.types.is_bool_dtype(values.dtype):
        floats = values.to_numpy(np.float64, na_value=np.nan)
    elif kind == "flag":
        floats = _by_text(values, lambda texts, _: texts.str.lower().map(TRUTHS), "").to_numpy(np.float64)
    elif style == "plain" and (plain := _plain_numbers(values)) is not None:
        floats = plain
    else:
        floats = _by_text(values, _parse_numbers, style).to_numpy(np.float64)
    return np.where(np.isfinite(floats), floats, np.nan)


def as_text(values: pd.Series[Any]) -> pd.Series[Any]:
    """Return values as stripped text, None where missing.

    Whole numbers are written without decimals, so that a code has the same text whether pandas read it as 1, 1.0 or "1".
    """
    codes, uniques = pd.factorize(values)
    texts = np.array([*map(_text, uniques), None], dtype=object)
    return pd.Series(texts[codes], index=values.index, dtype=object)


def as_frame(table: Any, names: npt.NDArray[Any] | None = None) -> pd.DataFrame:
    """Return a table as a DataFrame, with the columns ``names`` if given; arrays have their columns in that order."""
    if isinstance(table, np.ndarray):
        if table.ndim != 2 or (names is not None and table.shape[1] != len(names)):
            expected = "2 dimensions" if names is None else f"{len(names)} columns"
            raise UserError(f"an array of shape {table.shape} is not a table with {expected}")
        return pd.DataFrame(table, columns=pd.Index([f"x{i}" for i in range(table.shape[1])] if names is None else names))
    if hasattr(table, "to_pandas"):  # pyarrow and polars
        table = table.to_pandas()
    if not isinstance(table, pd.DataFrame):
        table = pd.DataFrame(table)
    frame: pd.DataFrame = table.set_axis([str(name) for name in table.columns], axis=1)
    if names is None:
        return frame
    check_columns(names, frame.columns, "the table")
    return frame.loc[:, list(names)]


def date_parts(name: str, days: Floats) -> Iterator[tuple[str, Floats]]:
    """Yield the day since 1970, the month from 1, the weekday from Monday as 0 and the hour of times in days."""
    missing, whole = np.isnan(days), np.floor(np.nan_to_num(days))
    months = whole.astype("datetime64[D]").astype("datetime64[M]").astype(np.int64) % 12 + 1
    hours = np.floor((np.nan_to_num(days) - whole) * 24 + 1e-6)
    for part, values in zip(DATE_PARTS, (days, months, (whole + 3) % 7, hours), strict=True):
        yield f"{name} {part}", np.where(missing, np.nan, values)


def _text(value: Any) -> str | None:
    if isinstance(value, (float, np.floating)) and float(value).is_integer():
        value = int(value)
    text = str(value).strip()
    return None if text in MISSING_WORDS else re.sub(r"(?<=\d)\.0+$", "", text) if re.fullmatch(r"[+-]?\d+\.0+", text) else text


def _by_text(values: pd.Series[Any], parser: Callable[[pd.Series[Any], str], pd.Series[Any]], style: str) -> pd.Series[Any]:
    """Parse every distinct text once."""
    codes, uniques = pd.factorize(as_text(values))
    parsed = parser(pd.Series(uniques, dtype=object), style)
    return parsed.reindex(range(len(parsed) + 1)).take(np.where(codes < 0, len(parsed), codes)).set_axis(values.index)


def _plain_numbers(values: pd.Series[Any]) -> Floats | None:
    """Return a text column as numbers if all its values are, without looking at them one by one."""
    if values.dtype == object:
        return None
    texts = values.str.strip()
    known = texts.where(~texts.isin(MISSING_WORDS))
    numbers = np.asarray(pd.to_numeric(known, errors="coerce").to_numpy(np.float64, na_value=np.nan), dtype=np.float64)
    return None if np.any(np.isnan(numbers) & known.notna().to_numpy()) else numbers


def _parse_numbers(texts: pd.Series[Any], style: str) -> pd.Series[Any]:
    if style != "plain":
        texts = texts.str.replace(_SYMBOLS, "", regex=True)
        texts = texts.where(texts.str.fullmatch(_POINT if style == "point" else _COMMA).astype(bool))
        texts = texts.str.replace("," if style == "point" else ".", "").str.replace(",", ".")
    numbers = pd.to_numeric(texts, errors="coerce").astype(np.float64)
    return numbers.where(np.isfinite(numbers))


def _parse_dates(texts: pd.Series[Any], style: str) -> pd.Series[Any]:
    return pd.to_datetime(texts, format=style, utc=True, errors="coerce")


def _days(values: pd.Series[Any]) -> Floats:
    times = pd.to_datetime(values, utc=True)
    return np.asarray((times - pd.Timestamp(0, tz="UTC")) / pd.Timedelta(days=1), dtype=np.float64)


def _check_parsed(name: str, kind: Kind, values: pd.Series[Any], parsed: Floats) -> None:
    if kind != "date" and pd.api.types.is_numeric_dtype(values.dtype):
        return
    unread = as_text(values[np.isnan(parsed)]).dropna()
    if len(unread):
        raise UserError(
            f"column {name!r} holds {kind}s, but {unread.iloc[0][:TEXT_LENGTH]!r} is not one; correct it or leave it empty"
        )


def _is_binary(values: pd.Series[Any]) -> bool:
    return bool(values.dropna().isin((0, 1)).all())


def _is_later_part(name: str, kinds: dict[str, Kind]) -> bool:
    """Whether a column is another part of a date than its day, which has the indicator of missing dates."""
    date, _, part = name.rpartition(" ")
    return kinds.get(date) == "date" and part in DATE_PARTS[1:] and name not in kinds
