"""The report in a real browser: narrow and wide, light and dark, with a mouse and with keys, and while runs are added."""

from __future__ import annotations

import math
import random
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from boolit.lab.reports.charts import drawn
from boolit.lab.reports.report import html_page, study_section, write_page
from boolit.lab.reports.server import ReportServer
from boolit.lab.results.names import paper_name
from boolit.lab.results.store import Store
from boolit.lab.runs import Metric, Result
from boolit.lab.studies import load_study, plan, save
from boolit.nn import known_specs

pytestmark = pytest.mark.check

READY = "[...document.querySelectorAll('.chart')].every((chart) => 'ready' in chart.dataset)"
HOSTILE = "</script><script>document.title = 'taken'</script><!-- <b>"
ACTIVATIONS = ("relu", "tanh", "max", "or_ail", "xnor_ail", "xnor_nil", "or_and_xnor_nail_d")
ACCURACY = Metric(name="accuracy")


def made_up(make: Callable[..., Any], activations: Sequence[str] = ACTIVATIONS, seeds: int = 12, epochs: int = 30) -> list[Any]:
    """Return results whose accuracy depends on activation, size and seed."""
    results = []
    for place, spec in enumerate(activations):
        for size in (1000, 4000):
            for seed in range(seeds):
                noise = random.Random(f"{spec} {size} {seed}").gauss(0, 1)
                level = min(0.6 + 0.3 * place / len(activations) + 0.02 * math.log10(size) + 0.02 * noise, 0.99)
                curve = [0.5 + (level - 0.5) * (1 - math.exp(-5 * epoch / epochs)) for epoch in range(1, epochs + 1)]
                sizes = {"budget": size, "parameters": size + place, "widths": (size,)}
                results.append(make(spec, seed, level, history={"test_accuracy": curve}, **sizes))
    return results


@pytest.fixture(scope="session")
def study(tmp_path_factory: pytest.TempPathFactory, make_result: Callable[..., Any]) -> str:
    """Return the address of a report whose title and command are hostile."""
    folder = tmp_path_factory.mktemp("made-up")
    with Store(folder) as store:
        store.record(made_up(make_result))
        title, command = f"Made up {HOSTILE}", f"boolit run {HOSTILE}"
        section = study_section(store.frame(), store.curves(), ACCURACY, title=title, command=command, recipe={"epochs": "30"})
    return write_page([section], folder / "report.html").as_uri()


def until(page: Any, condition: str, argument: object = None) -> None:
    """Wait for a condition. Playwright's own way is forbidden by the page's content policy."""
    for _ in range(1000):
        if page.evaluate(condition, argument):
            return
        page.wait_for_timeout(20)
    raise AssertionError(f"after 20 s it is still not true that {condition}")


def draw_all(page: Any) -> Any:
    page.evaluate("document.querySelectorAll('.charts').forEach((charts) => charts.drawAll())")
    until(page, READY)
    return page


@pytest.mark.parametrize(("width", "scheme"), [(390, "light"), (390, "dark"), (1400, "light"), (1400, "dark")])
def test_it_fits_is_accessible_and_has_its_charts(
    study: str, open_page: Any, assert_fits: Any, assert_accessible: Any, width: int, scheme: str
) -> None:
    page = draw_all(open_page(study, width, scheme))
    assert_fits(page)
    assert page.evaluate("document.documentElement.dataset.theme") == scheme
    assert page.title().startswith("Made up </script>")
    assert page.locator(".chart canvas").count() == 4
    assert_accessible(page)


def test_sorting_sorts_by_value_with_mouse_and_keys(study: str, open_page: Any) -> None:
    page = open_page(study)
    table = page.locator("table.results").first
    head = table.locator("thead th").nth(2)
    head.get_by_role("button").click()
    assert head.get_attribute("aria-sort") == "descending"
    cells = table.locator("tbody td:nth-child(3)")
    values = cells.evaluate_all("(cells) => cells.map((cell) => Number(cell.dataset.value))")
    assert len(values) == len(ACTIVATIONS)
    assert values == sorted(values, reverse=True)
    head.get_by_role("button").press("Enter")
    assert head.get_attribute("aria-sort") == "ascending"
    table.locator("thead th").nth(0).get_by_role("button").press("Space")
    assert head.get_attribute("aria-sort") is None


def test_the_legend_hides_and_shows_an_activation_in_every_chart(study: str, open_page: Any) -> None:
    page = draw_all(open_page(study))
    button, name = page.locator(".legend button").first, paper_name("or_and_xnor_nail_d")
    button.click()
    assert button.get_attribute("aria-pressed") == "false"
    gone = "(name) => [...document.querySelectorAll('.chart')].every((chart) => chart.view.signal('hidden').includes(name))"
    until(page, gone, name)
    button.press("Enter")
    until(page, "document.querySelector('.chart').view.signal('hidden').length === 0")


def test_the_size_and_the_theme_can_be_changed(study: str, open_page: Any) -> None:
    page = draw_all(open_page(study))
    select = page.locator(".chart[data-chart=runs] select")
    assert select.evaluate("(own) => [...own.options].map((option) => option.value)") == ["1k parameters", "4k parameters"]
    select.select_option("1k parameters")
    until(page, "document.querySelector('.chart[data-chart=runs]').view.signal('panel') === '1k parameters'")
    before = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.evaluate("document.querySelectorAll('.chart').forEach((chart) => { delete chart.dataset.ready; })")
    page.get_by_role("button", name="Show the page dark").click()
    until(page, READY)
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != before


def test_a_watched_study_grows_without_losing_its_place(tmp_path: Path, open_page: Callable[..., Any]) -> None:
    planned = plan(load_study("parity"), seeds=6)
    results = [Result(run, "finished", {"test_accuracy": 0.5 + run.seed / 100}) for run in planned.runs]
    save(planned, tmp_path)
    with Store(tmp_path) as store:
        store.record(results[::2])
    with ReportServer([tmp_path]) as server:
        serving = threading.Thread(target=server.serve_forever, args=(0.05,))
        serving.start()
        try:
            page = open_page(server.url)
            half = f"Unfinished: {len(results[::2])} of {len(results)} runs are done"
            assert page.locator(".unfinished").inner_text().startswith(half)
            page.locator(".legend button").first.click()
            page.evaluate("scrollTo({top: 400, behavior: 'instant'})")
            with Store(tmp_path) as store:
                store.record(results[1::2])
            until(page, "Number(document.querySelector('main').dataset.updates) >= 1")
            assert page.locator(".unfinished").count() == 0
            assert "has the highest mean" in page.locator(".verdict").inner_text()
            assert page.evaluate("scrollY") == 400
        finally:
            server.shutdown()
            serving.join()


def test_thousands_of_runs_make_a_page_of_at_most_three_megabytes(tmp_path: Path, make_result: Callable[..., Any]) -> None:
    activations = [spec for spec in known_specs() if spec != "identity"][:30]
    store = Store(tmp_path)
    store.record(made_up(make_result, activations, seeds=84))
    frame = store.frame()
    assert len(frame) > 5000
    section = study_section(frame, store.curves(drawn(frame, ACCURACY)), ACCURACY, title="Many")
    assert len(html_page([section]).encode()) <= 3_000_000
