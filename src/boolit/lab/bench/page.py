"""A benchmark as a report: one HTML file."""

from __future__ import annotations

import math
import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from boolit.errors import UserError
from boolit.lab.bench.presentation import headline, remarks, tables, with_verdict
from boolit.lab.bench.result import GatesResult, TimingGroup, time_bars
from boolit.lab.bench.settings import REFERENCES, CandidateKey
from boolit.lab.bench.training import (
    AUGMENTATION,
    AUGMENTATION_BAR,
    HEADS_BAR,
    HEADS_BATCH,
    RESNET_BATCH,
    STACKING_BARS,
    TrainingResult,
)
from boolit.lab.reports.charts import Chart, bar_chart
from boolit.lab.reports.page import Section
from boolit.lab.reports.report import write_page
from boolit.lab.reports.tables import Table

_NUMBER = re.compile(r"[\d.,]*\d")
_NOTE = "relu to copy: our time over theirs; published and compiled: how many times faster we are."


def check_page(path: Path) -> None:
    """Refuses a page that cannot be written, before a minute has gone into what it is to show."""
    if path.suffix != ".html" or not path.parent.is_dir() or path.is_dir():
        raise UserError(f"cannot write {str(path)!r}: name a file that ends in .html, in a folder that exists")


def write_bench_page(result: GatesResult | TrainingResult, path: Path) -> None:
    """Writes the report of a benchmark."""
    section = gates_section(result) if isinstance(result, GatesResult) else training_section(result)
    try:
        write_page([section], path)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}; choose a file that can be written") from error


def gates_section(result: GatesResult) -> Section:
    """How many bars are met, every table, and the times as multiples of relu's."""
    met, entry = result.verdicts(), result.to_json()
    settings = entry["settings"]
    assert isinstance(settings, dict)
    return Section(
        "Speed and memory of the gates",
        "bench",
        verdict=f"{sum(met)} of {len(met)} bars are met. {headline(result)}.",
        paragraphs=remarks(result),
        tables=[_result_table(own.title, own.headings, [*own.rows, *own.references], _NOTE) for own in tables(result)],
        charts=[_ratios(f"ratios-{i}", g) for i, g in enumerate(result.groups) if not g.call and g.direction != "forward"],
        recipe={name: _plain(value) for name, value in settings.items()},
        environment={name: str(value) for name, value in result.stamp.items() if isinstance(value, (str, int, float))},
        command=_command(),
    )


def _plain(value: object) -> str:
    return ", ".join(map(_plain, value)) if isinstance(value, (list, tuple)) else str(value)


def _ratios(chart: str, group: TimingGroup) -> Chart:
    relu = group.timings[CandidateKey("torch", "relu")]
    shown: dict[str, tuple[float, float | None]] = {}
    for spec in group.specs:
        ratios = group.ratios(spec)
        bars = {
            name: limit
            for name, limit in time_bars(spec, len(group.case.shape)).items()
            if name in ratios and name in REFERENCES
        }
        limits = [limit * group.timings[CandidateKey("torch", name)].ratio(relu) for name, limit in bars.items()]
        shown[spec] = ratios["relu"].value, max(limits, default=None)
    for name in REFERENCES:
        if (key := CandidateKey("torch", name)) in group.timings:
            shown.setdefault(name, (group.timings[key].ratio(relu), None))
    return bar_chart(chart, f"{group.case}: time of {group.direction}", shown, "multiple of ReLU's time")


def training_section(result: TrainingResult) -> Section:
    """How much faster stacked training is, and what steps of large networks cost."""
    base, cost, heads = result.steps["relu"], result.augmentation, result.heads
    gains = [
        (
            name,
            str(gain.runs),
            f"{1e3 * gain.stacked:.1f}",
            f"{gain.ratio:.1f}",
            _bar(name, gain.ratio),
            f"{gain.plain_ratio:.1f}",
        )
        for name, gain in result.gains.items()
    ]
    steps = []
    for spec, step in result.steps.items():
        time, peak = step.seconds / base.seconds, step.peak / base.peak
        cells = f"{step.parameters:,}", f"{step.seconds:.2f}", f"{time:.2f}", f"{step.peak / 1e6:.0f}", f"{peak:.2f}"
        steps.append((spec, *cells))
    bars = [gain.ratio >= STACKING_BARS[name] for name, gain in result.gains.items() if name in STACKING_BARS]
    met = [*bars, cost.ratio <= AUGMENTATION_BAR, heads.ratio <= HEADS_BAR]
    title = f"ResNet-50, batch {RESNET_BATCH}"
    ratios = {spec: (step.seconds / base.seconds, None) for spec, step in result.steps.items()}
    gain_headings = ("what", "runs", "ms/epoch, stacked", "× one by one", "bar", "× plain torch")
    step_headings = ("spec", "parameters", "s/step", "× relu's time", "peak MB", "× relu's peak")
    return Section(
        "Speed of training",
        "bench",
        verdict=f"{sum(met)} of {len(met)} bars are met.",
        paragraphs=[
            f"Augmentation {AUGMENTATION} takes {1e3 * cost.augmentation:.1f} ms, the step it feeds {1e3 * cost.step:.1f} ms: "
            f"a ratio of {cost.ratio:.2f}, at most {AUGMENTATION_BAR}.",
            f"A step of all {heads.heads} heads of the transfer study, of {HEADS_BATCH} images and with the encoder, costs "
            f"{heads.ratio:.2f} times as much as one head's, at most {HEADS_BAR}.",
        ],
        tables=[_result_table("Stacked training", gain_headings, gains), _result_table(title, step_headings, steps)],
        charts=[bar_chart("steps", f"{title}: time of a step", ratios, "multiple of ReLU's time")],
        command=_command(),
    )


def _bar(name: str, ratio: float) -> str:
    return with_verdict(f"≥ {STACKING_BARS[name]}", ratio >= STACKING_BARS[name]) if name in STACKING_BARS else ""


def _result_table(title: str, headings: Sequence[str], rows: Sequence[Sequence[str]], note: str = "") -> Table:
    """Return a table of texts, each sorted by the number it begins with."""
    text = pd.DataFrame([row[1:] for row in rows], index=[row[0] for row in rows], columns=list(headings[1:]))
    return Table(title, text, text.map(_number), pd.DataFrame(index=text.index), (note,) if note else ())


def _number(text: str) -> float:
    number = _NUMBER.search(text)
    return float(number[0].replace(",", "")) if number else math.nan


def _command() -> str:
    return shlex.join(["boolit", *sys.argv[1:]])
