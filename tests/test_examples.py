"""The gallery, the notebooks and the page on choosing an activation: fit to be built anywhere, and true to their CSVs.

That they run is known when the site is built (test_site.py); here is what a build does not notice.
"""

from __future__ import annotations

import ast
import csv
import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
from scipy import stats

from boolit.lab.results.resampled import ResampledSplits, estimate
from boolit.lab.results.store import Store
from boolit.lab.runs import Record, Run
from boolit.nn import activation

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
EXAMPLES = sorted((DOCS / "examples").glob("*.py"))
NOTEBOOKS = sorted((DOCS / "notebooks").glob("*.ipynb"))
EVIDENCE = sorted((DOCS / "evidence").glob("*.csv"))
MACHINE = re.compile(r"(?<![\w.])/(tmp|home|root|work|Users|var|mnt)/|[A-Z]:\\\\")
DOWNLOAD = re.compile(r"https?://|\bfetch_|urllib|requests\b|pooch|wget|curl |%pip|!pip|download=True")
COLUMNS = ["study", "activation", "parameters", "depth", "seed", "metric", "value", "seconds", "tested", "other"]


def load_file(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"loaded_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # a dataclass looks its module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def reading() -> ModuleType:
    return load_file(DOCS / "evidence" / "reading.py")


@pytest.fixture(scope="module")
def evidence() -> ModuleType:
    return load_file(ROOT / "benchmarks" / "evidence.py")


def test_the_index_leads_to_all() -> None:
    index = (DOCS / "index.md").read_text()
    assert re.search(r"^choosing$", index, re.MULTILINE)
    assert re.search(r"^auto_examples/index$", index, re.MULTILINE)
    assert "notebooks/*" in index or all(f"notebooks/{path.stem}" in index for path in NOTEBOOKS)
    assert (DOCS / "examples" / "README.rst").read_text().splitlines()[1].startswith("===")
    assert len(EXAMPLES) >= 6
    assert len(NOTEBOOKS) == 3


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_has_a_title_cells_and_a_plot(path: Path) -> None:
    text = path.read_text()
    assert path.name.startswith("plot_"), "the gallery runs plot_*.py only"
    title, underline, *rest = (ast.get_docstring(ast.parse(text), clean=False) or "").strip().splitlines()
    assert underline == "=" * len(title)
    assert len(" ".join(rest)) > 80, "a reader wants to know what it is about"
    assert text.count("\n# %%\n") >= 2
    assert "plt.subplots" in text


@pytest.mark.parametrize("path", [*EXAMPLES, *NOTEBOOKS, DOCS / "choosing.md"], ids=lambda path: path.stem)
def test_nothing_of_a_machine_and_no_downloads(path: Path) -> None:
    text = path.read_text()
    assert not MACHINE.search(text)
    assert not DOWNLOAD.search(text)


def test_links_between_examples_lead_somewhere() -> None:
    for path in EXAMPLES:
        for target in re.findall(r":doc:`[^`<]*<([^>]+)>`", path.read_text()):
            found = DOCS / f"{target.lstrip('/')}.ipynb" if target.startswith("/") else DOCS / "examples" / f"{target}.py"
            assert found.exists(), f"{path.name} links to {target}"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_valid_and_has_no_outputs(path: Path) -> None:
    nbformat = pytest.importorskip("nbformat")
    notebook = nbformat.read(path, as_version=nbformat.NO_CONVERT)
    nbformat.validate(notebook)
    assert (notebook.nbformat, notebook.nbformat_minor) >= (4, 5), "cells have ids from 4.5 on"
    assert notebook.metadata.kernelspec.name == "python3"
    ids = [cell.id for cell in notebook.cells]
    assert len(set(ids)) == len(ids)
    assert notebook.cells[0].cell_type == "markdown"
    assert notebook.cells[0].source.startswith("# ")
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(not cell.outputs and cell.execution_count is None for cell in code)
    whole = "\n".join(cell.source for cell in code)
    ast.parse(whole)
    assert ("write" not in whole and "Store" not in whole) or "tempfile.TemporaryDirectory()" in whole


@pytest.mark.parametrize("path", EVIDENCE, ids=lambda path: path.stem)
def test_evidence_is_small_named_and_well_formed(path: Path) -> None:
    assert path.stat().st_size < 400_000
    assert f"`{path.name}`" in (DOCS / "evidence" / "README.md").read_text(), "the README says which command made it"
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == COLUMNS
    assert {row["study"] for row in rows} == {path.stem}
    for spec in {row["activation"] for row in rows}:
        activation(spec)
    for row in rows:
        assert float(row["seconds"]) >= 0
        if "accuracy" in row["metric"] and row["value"]:
            assert 0 <= float(row["value"]) <= 1
            assert len(row["value"].lstrip("0.")) <= 6


def test_the_page_types_no_number_by_hand() -> None:
    text = re.sub(r"^```\{code-cell\}.*?^```$", "", (DOCS / "choosing.md").read_text(), flags=re.MULTILINE | re.DOTALL)
    advice = re.search(r'Markdown\(f"""(.*?)"""\)', (DOCS / "choosing.md").read_text(), re.DOTALL)
    assert advice is not None
    prose = re.sub(r"\{[^}]*\}|^\d\.", "", advice[1], flags=re.MULTILINE)
    assert not re.search(r"\d", prose)
    assert set(re.findall(r"\d+(?:\.\d+)? %|\d+\.\d+", text)) <= {"95 %"}
    assert len(re.findall(r"^\d\. \*\*", advice[1], re.MULTILINE)) == 5


def write_csv(path: Path, rows: list[str]) -> None:
    path.write_text("\n".join([",".join(COLUMNS), *rows]) + "\n")


def test_a_gain_over_relu_is_welchs_interval(reading: ModuleType, tmp_path: Path) -> None:
    relu, gate = [0.5, 0.52, 0.55, 0.51], [0.9, 0.7, 0.95, 0.8]
    rows = [f"toy,relu,10,2,{seed},test_accuracy,{value},1,," for seed, value in enumerate(relu)]
    rows += [f"toy,xnor_ail,12,2,{seed},test_accuracy,{value},1,," for seed, value in enumerate(gate)]
    rows += ["toy,xnor_ail,12,2,9,test_accuracy,,1,,"]
    rows += [f"toy,max,12,2,{seed},test_accuracy,0.4{seed},1,," for seed in (0, 1)]  # as large as another: still one panel
    write_csv(tmp_path / "toy.csv", rows)
    (panel,) = reading.read_panels(tmp_path)
    low, high = stats.ttest_ind(gate, relu, equal_var=False).confidence_interval(0.95)
    gain = panel.gain("xnor_ail")
    assert (gain.low, gain.high) == pytest.approx((low, high))
    assert gain.verdict == "better"
    assert panel.gain("relu", "xnor_ail").verdict == "worse"
    assert panel.gain("relu") is None
    assert panel.ranking == ["xnor_ail", "relu", "max"]
    assert "4 (+1 diverged)" in reading.panel_table(panel)
    assert "toy (XNORₐᵢₗ +" in reading.tally([panel], ["xnor_ail"])


def test_runs_with_rows_of_their_own_are_paired_and_a_smaller_error_is_better(reading: ModuleType, tmp_path: Path) -> None:
    relu, gate = [50.0, 60.0, 55.0, 58.0, 52.0], [40.0, 51.0, 44.0, 48.0, 41.0]
    rows = [
        f"toy,{spec},9,2,{seed},test_rmse,{value},1,20,80"
        for spec, own in (("relu", relu), ("max", gate))
        for seed, value in enumerate(own)
    ]
    write_csv(tmp_path / "toy.csv", rows)
    (panel,) = reading.read_panels(tmp_path)
    expected = estimate([a - b for a, b in zip(relu, gate, strict=True)], ResampledSplits(5, 20, 80), share=False)
    assert (panel.gain("max").low, panel.gain("max").high) == pytest.approx((expected.low, expected.high))
    assert panel.gain("max").verdict == "better"
    assert panel.ranking == ["max", "relu"]


def test_sizes_are_compared_each_for_itself(reading: ModuleType, tmp_path: Path) -> None:
    rows = [
        f"toy,{spec},{size},2,{seed},test_accuracy,0.{seed + 5},1,,"
        for spec in ("relu", "max")
        for size in (1000, 2000)
        for seed in (0, 1)
    ]
    write_csv(tmp_path / "toy.csv", rows)
    panels = reading.read_panels(tmp_path)
    assert [panel.title for panel in panels] == ["toy, 1k parameters", "toy, 2k parameters"]
    assert len(reading.draw_study(panels).axes) == 2
    assert reading.summary_table(panels).count('scope="row"') == 2
    write_csv(tmp_path / "toy.csv", [*rows, rows[0]])
    with pytest.raises(ValueError, match="seed 0 of relu more than once"):
        reading.read_panels(tmp_path)


def test_widths_without_budgets_are_compared_by_their_order(reading: ModuleType, tmp_path: Path) -> None:
    sizes = {"relu": (10, 30), "max": (8, 25)}
    rows = [
        f"toy,{spec},{size},2,{seed},test_accuracy,0.{seed + 5},1,,"
        for spec in sizes
        for size in sizes[spec]
        for seed in (0, 1)
    ]
    write_csv(tmp_path / "toy.csv", rows)
    panels = reading.read_panels(tmp_path)
    assert [panel.title for panel in panels] == ["toy, 8 to 10 parameters", "toy, 25 to 30 parameters"]
    assert all(panel.gain("max") is not None for panel in panels)


def test_names_are_escaped(reading: ModuleType, tmp_path: Path) -> None:
    write_csv(tmp_path / "toy.csv", [f"<b>,<i>,9,2,{seed},test_accuracy,0.5,1,," for seed in (0, 1)])
    panels = reading.read_panels(tmp_path)
    shown = reading.summary_table(panels) + reading.panel_table(panels[0])
    assert "<b>" not in shown
    assert "<i>" not in shown


@pytest.fixture
def store(tmp_path: Path) -> Path:
    def record(seed: int, value: float, state: str = "finished", **more: object) -> Record:
        entries = {
            "study": "s",
            "activation": "relu",
            "depth": 2,
            "parameters": 9,
            "budget": 10,
            "metric": {"name": "accuracy"},
        }
        run = Run.from_dict({**entries, "seed": seed, **more})
        return Record(run.key, run.config, state, {"test_accuracy": value}, seconds=0.125)  # type: ignore[arg-type]

    folder = tmp_path / "results"
    with Store(folder) as store:
        store.record([record(1, 1 / 3), record(0, float("nan"), "diverged"), record(2, 0.9, trial=True)])
    return folder


def test_a_store_becomes_a_csv(evidence: ModuleType, store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    evidence.main([str(store), "mine", "--to", str(tmp_path)])
    assert capsys.readouterr().out == "mine.csv: 2 runs\n"
    assert (tmp_path / "mine.csv").read_text().splitlines() == [
        ",".join(COLUMNS),
        "mine,relu,10,2,0,test_accuracy,,0.125,,",
        "mine,relu,10,2,1,test_accuracy,0.333333,0.125,,",
    ]


def test_bad_arguments_are_one_line(evidence: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in ([str(tmp_path)], [str(tmp_path / "nothing"), "mine"]):
        with pytest.raises(SystemExit) as ended:
            evidence.main([*arguments, "--to", str(tmp_path)])
        assert ended.value.code == 2
        assert "error: " in capsys.readouterr().err
