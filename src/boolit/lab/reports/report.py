"""Reports of results folders: a section per study, search or comparison, written as one HTML page and as tables.

The runs of a folder are planned again from its ``study.json``. Runs that do not belong to the plan, such as those of another
recipe, are left out. Styles, scripts, data and pictures are inside the page, and its content policy forbids every connection;
only a page from `boolit.lab.reports.server` may ask that server for updates.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, FileSystemLoader, Template
from markupsafe import Markup
from pydantic import TypeAdapter

from boolit.errors import UserError
from boolit.lab.common.files import atomic_write
from boolit.lab.datasets import for_choosing
from boolit.lab.reports.charts import Chart, drawn, run_charts, search_charts, series, vega_script
from boolit.lab.reports.tables import FORMATS, Table, ranking, search_table, split_tables, study_tables
from boolit.lab.results.names import metric_label, paper_name, sort_key
from boolit.lab.results.splits import SplitVerdict
from boolit.lab.results.statistics import compare, verdict
from boolit.lab.results.store import Store
from boolit.lab.runs import Metric, RunConfig, canonical
from boolit.lab.studies import SavedStudy, load
from boolit.lab.studies.search import FINALISTS, RANGES, initial_bounds, value_of

FOLDER = Path(__file__).parent
SUFFIXES = {"markdown": "md", "latex": "tex", "csv": "csv"}
MAX_LISTED = 8  # values of an entry of the recipe


@dataclass(frozen=True)
class Picture:
    """A PNG image with a caption; ``name`` is that of its file."""

    name: str
    caption: str
    png: bytes


@dataclass(frozen=True)
class Section:
    """Part of a report: a verdict, tables and charts.

    ``kind`` is ``study``, ``search`` or ``compare``; ``done`` of ``planned`` runs are recorded. If it is not known how many are
    planned, ``planned`` is None.
    """

    title: str
    kind: str
    verdict: str = ""
    paragraphs: Sequence[str] = ()
    tables: Sequence[Table] = ()
    charts: Sequence[Chart] = ()
    pictures: Sequence[Picture] = ()
    recipe: Mapping[str, str] | None = None
    environment: Mapping[str, str] | None = None
    command: str = ""
    done: int = 0
    planned: int | None = 0

    @property
    def unfinished(self) -> str:
        """The sentence that replaces the verdict while runs are missing."""
        if self.planned is not None and self.done >= self.planned:
            return ""
        done = f"{self.done} runs" if self.planned is None else f"{self.done} of {self.planned} runs"
        return f"Unfinished: {done} are done; there is no verdict before all are."


Pictures = Callable[[Store, pd.DataFrame, Metric, Sequence[str]], Iterable[Picture]]


@dataclass(frozen=True)
class Report:
    """A report that was written: its section, the page and all files. Without any runs there is no page."""

    section: Section
    page: Path | None
    files: tuple[Path, ...]

    @property
    def verdict(self) -> str:
        """The verdict; empty while runs are missing."""
        return self.section.verdict

    @property
    def tables(self) -> Sequence[Table]:
        """The tables, the most important first."""
        return self.section.tables

    def to_json(self) -> dict[str, Any]:
        """Return the rows of the tables by their titles, and the files."""
        tables = {table.title: table.records() for table in self.tables}
        return {"tables": tables, "files": [str(path) for path in self.files]}


def write_report(folder: str | Path, pictures: Pictures | None = None, charts: str | Sequence[str] = ()) -> Report:
    """Write the report of a results folder to its ``report/``: the page, and the tables as Markdown, LaTeX and CSV.

    Args:
        folder: a folder that `boolit run`, `search` or `compare` has written to.
        pictures: draws pictures of trained networks, such as `boolit.lab.paper.figures.networks.pictures`.
        charts: formats, of ``png``, ``svg`` and ``pdf``, in which every chart is also written to a file.
    """
    folder = Path(folder)
    section, place = read_section(folder, pictures), folder / "report"
    if not section.done:
        return Report(section, None, ())
    files = [place / f"tables.{suffix}" for suffix in SUFFIXES.values()]
    try:
        place.mkdir(parents=True, exist_ok=True)
        for name, path in zip(SUFFIXES, files, strict=True):
            path.write_text("\n".join(FORMATS[name](table) for table in section.tables), encoding="utf-8")
        for picture in section.pictures:
            files.append(place / f"{picture.name}.png")
            files[-1].write_bytes(picture.png)
        formats = [charts] if isinstance(charts, str) else charts
        files += [chart.save(place / f"{chart.name}.{suffix}") for suffix in formats for chart in section.charts]
        page = write_page([section], place / "report.html")
    except OSError as error:
        raise UserError(f"cannot write the report to {place} ({error.strerror or error}); the runs are safe") from error
    return Report(section, page, (*files, page))


def write_page(sections: Sequence[Section], path: Path) -> Path:
    """Write sections as one HTML page, atomically."""
    with atomic_write(path) as part:
        part.write_text(html_page(sections), encoding="utf-8")
    return path


def html_page(sections: Sequence[Section], live: str = "") -> str:
    """Render report sections as a self-contained HTML page.

    Args:
        sections: the sections.
        live: tag of the state that a server shows; the page asks the server for later states.
    """
    script, vega = (FOLDER / "page.js").read_text(encoding="utf-8"), vega_script()
    hashes = " ".join(f"'sha256-{_base64(hashlib.sha256(text.encode()).digest())}'" for text in (vega, script))
    connect = "'self'" if live else "'none'"
    title = sections[0].title if len(sections) == 1 else f"{len(sections)} results: {', '.join(s.title for s in sections)}"
    policy = (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data:; connect-src {connect}; "
        "base-uri 'none'; form-action 'none'"
    )
    style = (FOLDER / "page.css").read_text(encoding="utf-8")
    texts = {"policy": policy, "style": Markup(style), "script": Markup(script), "vega": Markup(vega)}
    legends = [series(dict.fromkeys(spec for chart in part.charts for spec in chart.activations)) for part in sections]
    charts = [{chart.name: chart.spec() for chart in section.charts} for section in sections]
    data = [{"series": legend, "charts": specs} for legend, specs in zip(legends, charts, strict=True)]
    return _template().render(title=title, sections=sections, live=live, legends=legends, data=data, **texts)


@cache
def _template() -> Template:
    environment = Environment(loader=FileSystemLoader(FOLDER), autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "ensure_ascii": False, "allow_nan": False}
    environment.filters["row_name"] = lambda name: Markup(paper_name(name, "html"))
    environment.filters["base64"] = _base64
    environment.filters["number"] = lambda value: (
        repr(float(value)) if isinstance(value, (int, float)) and value == value else ""
    )
    return environment.get_template("page.html.jinja")


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def read_section(folder: Path, pictures: Pictures | None = None) -> Section:
    """Return the section of a results folder."""
    saved = load(folder)
    with Store(folder) as store:
        if not store.path.is_file():
            return Section(saved.plan.study.title, saved.kind, planned=len(saved.plan.runs))
        if saved.kind == "search":
            return _search(saved, store)
        if saved.kind == "compare":
            return _compare(saved, store)
        return _study(saved, store, pictures)


def _entries(saved: SavedStudy, store: Store, frame: pd.DataFrame) -> dict[str, Any]:
    """Return the fields that sections of all kinds share."""
    environment: dict[str, dict[str, None]] = {}
    for values in store.environments():
        for name, value in values.items():
            environment.setdefault(name, {})[str(value)] = None
    times = {"runs": f"{len(frame):,}", "training": f"{frame['seconds'].sum():.0f} s"}
    return {
        "command": saved.command,
        "recipe": _recipe(saved.plan.study.model_dump(mode="json", exclude_unset=True)),
        "environment": {name: ", ".join(texts) for name, texts in environment.items()} | times,
    }


def _study(saved: SavedStudy, store: Store, pictures: Pictures | None) -> Section:
    plan, metric = saved.plan, saved.plan.study.metric
    frame = store.frame(run.key for run in plan.runs)
    curves = store.curves(drawn(frame, metric)) if len(frame) else pd.DataFrame()
    entries = _entries(saved, store, frame)
    section = study_section(frame, curves, metric, title=plan.study.title, planned=len(plan.runs), **entries)
    if pictures is None or not section.tables:
        return section
    return replace(section, pictures=list(pictures(store, frame, metric, section.charts[0].activations)))


def study_section(
    frame: pd.DataFrame,
    curves: pd.DataFrame,
    metric: Metric,
    *,
    title: str,
    planned: int = 0,
    **entries: Any,
) -> Section:
    """Return the section of a study.

    Args:
        frame: its runs, as `Store.frame` returns them.
        curves: the curves of some or all of them, as `Store.curves` returns them.
        metric: the metric of the study.
        title: the title of the section.
        planned: number of planned runs. While runs are missing, there is no verdict, and tables have no tests.
        entries: other fields of `Section`.
    """
    section = Section(title, "study", done=len(frame), planned=planned, **entries)
    if frame.empty:
        return section
    comparisons = compare(frame, metric)
    tables = study_tables(comparisons, f"{title}: {metric_label(metric)}", frame)
    if section.unfinished:
        tables = [table.without_verdict() for table in tables]
        order, text = sorted(set(frame["activation"]), key=sort_key), ""
    else:
        order, text = ranking(comparisons), "\n".join(map(verdict, comparisons))
    return replace(section, verdict=text, tables=tables, charts=run_charts(frame, curves, metric, order))


def _search(saved: SavedStudy, store: Store) -> Section:
    plan, length = saved.plan, saved.more.get("search", {})
    metric = plan.study.metric.model_copy(update={"split": "valid"})
    names = list(dict.fromkeys(name for run in plan.runs for name in initial_bounds(plan.study, run.training)))
    wanted = {_without_hparams(run.replace(data=for_choosing(run.data), trial=True), names) for run in plan.runs}
    stored = store.frame()
    trials = store.results(stored["key"][stored["trial"] & stored["stage"].notna()], history=False)
    configs = {each.key: each.config for each in trials if _without_hparams(each.config, names) in wanted}
    frame = stored[stored["key"].isin(configs)].reset_index(drop=True)
    columns = {name: [value_of(configs[key], name) for key in frame["key"]] for name in names}
    each = length.get("rounds", 0) * length.get("trials", 0) + FINALISTS * length.get("seeds", 0)
    complete = "results" in saved.more
    return search_section(
        frame.assign(**columns),
        metric,
        names,
        title=f"{plan.study.title}: search",
        planned=len(frame) if complete else max(len(frame) + 1, each * len(plan.runs)),
        paragraphs=list(dict.fromkeys(result["covers"] for result in saved.more.get("results", ()))),
        **_entries(saved, store, frame),
    )


def _without_hparams(config: RunConfig, names: Sequence[str]) -> str:
    """Return what all trials of an activation in one search have in common."""
    identity: dict[str, Any] = config.identity()
    training = {name: value for name, value in identity["training"].items() if name not in {*RANGES, *names, "options"}}
    model = {name: value for name, value in identity["model"].items() if name not in names}
    widths = None if "width" in names else identity["widths"]
    return canonical(identity | {"training": training, "model": model, "widths": widths, "seed": None})


def search_section(
    frame: pd.DataFrame, metric: Metric, names: Sequence[str], *, title: str, planned: int = 0, **entries: Any
) -> Section:
    """Return the section of a search.

    Args:
        frame: the trials of one search, with a column for each searched hyper-parameter.
        metric: the metric that chose the settings.
        names: the searched hyper-parameters.
        title: the title of the section.
        planned: number of planned runs.
        entries: other fields of `Section`.
    """
    section = Section(title, "search", done=len(frame), planned=planned, **entries)
    final = frame[frame["stage"] == "final"]
    if len(final):
        table = search_table(final, metric, names, f"{title}: settings of the final, by {metric_label(metric)}")
        best = [row for row in table.text.index if " #" not in row]
        chosen = ", ".join(f"{paper_name(row)} ({table.text.loc[row].iloc[0]})" for row in best)
        text = (
            f"The search chose a setting for {chosen}. The numbers are mean {metric_label(metric)} of the rows that chose it."
        )
        section = replace(section, tables=[table], verdict="" if section.unfinished else text)
    return replace(section, charts=search_charts(frame, metric, names)) if len(frame) else section


def _compare(saved: SavedStudy, store: Store) -> Section:
    more, stored = saved.more, store.frame()
    frame = stored[stored["key"].isin(more.get("keys", ()))]
    entries = {"title": saved.plan.study.title} | _entries(saved, store, stored)
    if "comparison" not in more:
        return Section(kind="compare", done=len(stored), planned=None, **entries)
    result = TypeAdapter(SplitVerdict).validate_python(more["comparison"])
    return compare_section(frame, store.curves(frame["key"]), result, more["verdict"], paragraphs=more["notes"], **entries)


def compare_section(
    frame: pd.DataFrame, curves: pd.DataFrame, result: SplitVerdict, text: str = "", *, title: str, **entries: Any
) -> Section:
    """Return the section of a comparison on resampled splits of a table.

    Args:
        frame: the final runs, one per activation and split.
        curves: their curves.
        result: scores of activations and baselines, and what follows from them.
        text: the verdict. Defaults to that of ``result``.
        title: the title of the section.
        entries: other fields of `Section`.
    """
    metric = result.metric
    parameters = dict(zip(frame["activation"], frame["parameters"].astype(int), strict=True))
    tables = split_tables(result, f"{title}: {metric_label(metric)}", parameters)
    charts = _split_charts(frame, curves, result)
    entries |= {"done": len(frame), "planned": len(frame), "tables": tables, "charts": charts}
    return Section(title, "compare", text or str(result), **entries)


def _split_charts(frame: pd.DataFrame, curves: pd.DataFrame, result: SplitVerdict) -> list[Chart]:
    """Return the charts of the splits' scores, which may be another metric than the networks were trained with."""
    frame = frame.sort_values("split", kind="stable")
    scores = frame.groupby("activation").cumcount()
    values = [result.scores[spec][place] for spec, place in zip(frame["activation"], scores, strict=True)]
    frame = frame.assign(**{result.metric.key: values}).reset_index(drop=True)
    return run_charts(frame, curves, result.metric, result.activations)


def _recipe(study: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Return the entries of a study as names with dots and values as text."""
    recipe: dict[str, str] = {}
    for name, value in study.items():
        if isinstance(value, Mapping):
            recipe |= _recipe(value, f"{prefix}{name}.")
        elif isinstance(value, list):
            shown = ", ".join(map(str, value[:MAX_LISTED]))
            recipe[f"{prefix}{name}"] = shown + (f", … ({len(value)} values)" if len(value) > MAX_LISTED else "")
        elif value is not None:
            recipe[f"{prefix}{name}"] = str(value)
    return recipe
