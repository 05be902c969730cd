"""The report in a real browser: at three widths, light and dark, with a mouse and with keys, and while runs are added."""

from __future__ import annotations

import http.client
import math
import random
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from boolit.lab.execute import execute
from boolit.lab.reports.page import html_page, report_study, write_section
from boolit.lab.reports.sections import ReportInfo, folder_sections
from boolit.lab.reports.server import ReportServer
from boolit.lab.results.store import Store
from boolit.lab.runs import Record, Run
from boolit.lab.studies import load_study, plan
from boolit.nn import known_specs

SIZES = [(width, scheme) for width in (390, 768, 1400) for scheme in ("light", "dark")]
READY = "[...document.querySelectorAll('.chart')].every((chart) => 'ready' in chart.dataset)"
HOSTILE = "</script><script>document.title = 'taken'</script><!-- <b>"
ENVIRONMENT = {"boolit": "0.0", "torch": "2.9", "python": "3.11", "system": "Linux x86_64", "threads": 1}
ACTIVATIONS = ("relu", "tanh", "max", "or_ail", "xnor_ail", "xnor_nil", "or_and_xnor_nail_d")


def made_up_records(
    activations: Sequence[str] = ACTIVATIONS,
    seeds: int = 12,
    budgets: Sequence[int] = (1000, 4000),
    epochs: int = 30,
    **entries: object,
) -> list[Record]:
    """Accuracies that depend on activation, size and seed; every third seed of xnor_ail is solved, the others are not."""
    records = []
    for place, spec in enumerate(activations):
        for budget in budgets:
            for seed in range(seeds):
                draw = random.Random(f"{spec} {budget} {seed}")
                level = 0.6 + 0.3 * place / len(activations) + 0.02 * math.log10(budget) + 0.02 * draw.gauss(0, 1)
                level = 0.995 if spec == "xnor_ail" and seed % 3 == 0 else min(level, 0.99)
                config = {
                    "study": "made-up",
                    "profile": "quick",
                    "data": {"name": "parity"},
                    "model": {"name": "mlp"},
                    "activation": spec,
                    "width": [8],
                    "depth": 1,
                    "budget": budget,
                    "parameters": budget + place,
                    "training": {"epochs": epochs, "learning_rate": 0.01},
                    "metric": {"name": "accuracy", "split": "test", "goal": "max"},
                    "seed": seed,
                    **entries,
                }
                run = Run.from_dict(config)
                curve = [0.5 + (level - 0.5) * (1 - math.exp(-5 * epoch / epochs)) for epoch in range(1, epochs + 1)]
                metrics = {"test_accuracy": level, "test_loss": 1 - level}
                history = {"test_accuracy": curve}
                records.append(Record(run.key, run.config, "finished", metrics, history, ENVIRONMENT, 0.1 + 0.01 * place))
    return records


def fill(folder: Path, records: Sequence[Record], info: ReportInfo | None = None) -> Path:
    """A folder with a store of these records."""
    with Store(folder) as store:
        store.record(records)
    if info is not None:
        info.write(folder)
    return folder


@pytest.fixture(scope="session")
def study(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of the report of made-up runs, whose title and command are hostile."""
    records = made_up_records()
    info = ReportInfo(title=f"Made up {HOSTILE}", command=f"boolit run {HOSTILE}", planned=len(records))
    folder = fill(tmp_path_factory.mktemp("made-up"), records, info)
    with ExitStack() as stack:
        report = write_section(folder_sections([folder], stack)[0], folder)
    assert report.page
    return report.page.as_uri()


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of the report of a study that was really trained, with pictures."""
    planned = plan(load_study("xor"), seeds=3, sets=["data.train=64", "data.test=32", "training.epochs=2"])
    with Store(tmp_path_factory.mktemp("trained")) as store:
        execute(planned, store, progress=False)
        page = report_study(planned, store).page
    assert page
    return page.as_uri()


def until(page: Any, condition: str, argument: object = None) -> None:
    """Waits for a condition. Playwright's own way compiles it inside of the page, whose content policy forbids that."""
    for _ in range(1000):
        if page.evaluate(condition, argument):
            return
        page.wait_for_timeout(20)
    raise AssertionError(f"in 20 s it did not come true that {condition}")


def draw_all(page: Any) -> Any:
    page.evaluate("document.querySelectorAll('.charts').forEach((charts) => charts.drawAll())")
    until(page, READY)
    return page


@pytest.mark.parametrize(("width", "scheme"), SIZES)
def test_it_fits_is_accessible_and_has_its_charts(
    study: str, open_page: Any, assert_fits: Any, assert_accessible: Any, width: int, scheme: str
) -> None:
    page = draw_all(open_page(study, width, scheme))
    assert_fits(page)
    assert page.evaluate("document.documentElement.dataset.theme") == scheme
    assert page.title().startswith("Made up </script>")
    assert page.locator(".chart canvas").count() == 4
    assert_accessible(page)


@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1400, "light")])
def test_a_trained_study_has_its_pictures(
    trained: str, open_page: Any, assert_fits: Any, assert_accessible: Any, width: int, scheme: str
) -> None:
    page = draw_all(open_page(trained, width, scheme))
    assert_fits(page)
    assert (
        page.evaluate("[...document.images].map((image) => image.alt.length > 20 && image.naturalWidth > 100)").count(True) >= 1
    )
    assert_accessible(page)


def column(page: Any, number: int) -> list[str]:
    return page.locator("table.results").first.locator(f"tbody tr > :nth-child({number})").all_inner_texts()


def test_sorting_sorts_by_value_with_mouse_and_keys(study: str, open_page: Any) -> None:
    page = open_page(study)
    head = page.locator("table.results").first.locator("thead th").nth(1)
    head.get_by_role("button").click()
    assert head.get_attribute("aria-sort") == "descending"
    values = (
        page.locator("table.results")
        .first.locator("tbody td:nth-child(2)")
        .evaluate_all("(cells) => cells.map((cell) => Number(cell.dataset.value))")
    )
    assert len(values) == len(ACTIVATIONS)
    assert values == sorted(values, reverse=True)
    head.get_by_role("button").press("Enter")
    assert head.get_attribute("aria-sort") == "ascending"
    first = page.locator("table.results").first.locator("thead th").nth(0)
    first.get_by_role("button").press("Space")
    assert head.get_attribute("aria-sort") is None
    specs = (
        page.locator("table.results")
        .first.locator("tbody th")
        .evaluate_all("(heads) => heads.map((head) => head.dataset.spec)")
    )
    assert sorted(specs) == sorted(ACTIVATIONS)
    names = column(page, 1)
    assert names == sorted(names, key=str.casefold)


def test_p_values_do_not_wrap(study: str, open_page: Any) -> None:
    page = open_page(study, 390)
    heights = page.evaluate("[...document.querySelectorAll('td')].map((cell) => getComputedStyle(cell).whiteSpace)")
    assert set(heights) == {"nowrap"}


def shown(page: Any, chart: str) -> list[str]:
    """The activations of the marks that are drawn."""
    return page.evaluate(
        """(name) => {
            const found = new Set();
            const walk = (node) => {
                if (node.datum && node.datum.activation && node.mark.marktype === 'symbol') found.add(node.datum.activation);
                (node.items || []).forEach(walk);
            };
            walk(document.querySelector(`.chart[data-chart=${name}]`).view.scenegraph().root);
            return [...found];
        }""",
        chart,
    )


def test_the_legend_hides_and_shows_a_series_in_every_chart(study: str, open_page: Any) -> None:
    page = draw_all(open_page(study))
    button = page.locator(".legend button").first
    name = page.evaluate(
        "document.querySelector('.chart').view.scenegraph().root && JSON.parse("
        "document.querySelector('.charts script').textContent).series[0].name"
    )
    assert name in shown(page, "runs")
    button.click()
    assert button.get_attribute("aria-pressed") == "false"
    gone = "(name) => [...document.querySelectorAll('.chart')].every((chart) => chart.view.signal('hidden').includes(name))"
    until(page, gone, name)
    for chart in ("runs", "curves", "parameters"):
        page.evaluate(f"document.querySelector('.chart[data-chart={chart}]').view.runAsync().then(() => 0)")
        assert name not in shown(page, chart)
        assert len(shown(page, chart)) == len(ACTIVATIONS) - 1
    button.press("Enter")
    until(page, "document.querySelector('.chart').view.signal('hidden').length === 0")
    page.evaluate("document.querySelector('.chart').view.runAsync().then(() => 0)")
    assert name in shown(page, "runs")


def test_hovering_shows_the_run(study: str, open_page: Any) -> None:
    page = draw_all(open_page(study))
    page.locator(".chart[data-chart=runs]").scroll_into_view_if_needed()
    place = page.evaluate(  # of the mark that is drawn last, and so hidden by no other
        """() => {
            const view = document.querySelector('.chart[data-chart=runs]').view;
            const [left, top] = view.origin(), edge = view.padding();
            const find = (node) => node.datum && node.datum.key && node.mark.marktype === 'symbol'
                ? node : (node.items || []).map(find).findLast(Boolean);
            const mark = find(view.scenegraph().root), box = view.container().querySelector('canvas').getBoundingClientRect();
            return {x: box.x + edge.left + left + mark.x, y: box.y + edge.top + top + mark.y, run: mark.datum.key};
        }"""
    )
    page.mouse.move(place["x"] - 3, place["y"] - 3)
    page.mouse.move(place["x"], place["y"])
    tooltip = page.locator("#vg-tooltip-element.visible")
    tooltip.wait_for()
    text = tooltip.inner_text()
    assert place["run"] in text
    assert "seed" in text
    assert "%" in text


def test_a_size_is_chosen_for_the_charts_of_one(study: str, open_page: Any) -> None:
    page = draw_all(open_page(study))
    select = page.get_by_label("Shown in charts of one size")
    assert select.evaluate("(own) => [...own.options].map((option) => option.value)") == ["1k parameters", "4k parameters"]
    for panel in ("1k parameters", "4k parameters"):
        select.select_option(panel)
        until(page, "(name) => document.querySelector('.chart').view.data('runs').every((row) => row.panel === name)", panel)
        page.evaluate("document.querySelector('.chart').view.runAsync().then(() => 0)")
        assert len(shown(page, "runs")) == len(ACTIVATIONS)


def test_the_theme_can_be_changed_and_the_charts_follow(study: str, open_page: Any) -> None:
    page = draw_all(open_page(study))
    before = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.evaluate("document.querySelectorAll('.chart').forEach((chart) => { delete chart.dataset.ready; })")
    page.get_by_role("button", name="Show the page dark").click()
    until(page, READY)
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != before
    assert page.get_by_role("button", name="Show the page light").is_visible()


def test_a_paper_page_is_light_and_has_every_chart(study: str, open_page: Any) -> None:
    page = open_page(study)
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    until(page, READY)
    page.emulate_media(media="print")
    assert page.locator("nav").is_hidden()
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")


def test_a_watched_study_grows_without_losing_its_place(
    tmp_path: Path, open_page: Callable[..., Any], assert_accessible: Callable[[Any], None]
) -> None:
    records = made_up_records(seeds=6)
    half = records[::2]
    info = ReportInfo(title="Growing", planned=len(records), keys=[record.key for record in records], study="made-up")
    fill(tmp_path, half, info)
    with ReportServer([tmp_path]) as server:
        serving = threading.Thread(target=server.serve_forever, args=(0.05,))
        serving.start()
        try:
            page = open_page(server.url)
            said = page.locator(".unfinished")
            assert said.inner_text().startswith(f"Unfinished: {len(half)} of {len(records)} runs are done")
            assert page.locator("progress").get_attribute("value") == str(len(half))
            assert_accessible(page)
            page.locator(".legend button").first.click()
            page.evaluate("scrollTo({top: 400, behavior: 'instant'})")
            with Store(tmp_path) as store:
                store.record(records[1::2])
            until(page, "document.querySelector('main').dataset.updates === '1'")
            assert page.locator(".unfinished").count() == 0
            assert "is best" in page.locator(".verdict").inner_text()
            assert page.evaluate("scrollY") == 400
            assert page.locator(".legend button").first.get_attribute("aria-pressed") == "false"
        finally:
            server.shutdown()
            serving.join()


def test_the_server_answers_to_its_own_address_only(tmp_path: Path) -> None:
    fill(tmp_path, made_up_records(seeds=2, budgets=(1000,)))
    with ReportServer([tmp_path]) as server:
        serving = threading.Thread(target=server.serve_forever, args=(0.05,))
        serving.start()
        try:
            assert server.server_address[0] == "127.0.0.1"
            for host, status in ((f"127.0.0.1:{server.server_port}", 200), ("evil.example", 421), ("127.0.0.1:1", 421)):
                asked = http.client.HTTPConnection("127.0.0.1", server.server_port)
                asked.request("GET", "/state", headers={"Host": host})
                answer = asked.getresponse()
                assert answer.status == status
                asked.close()
            asked = http.client.HTTPConnection("127.0.0.1", server.server_port)
            asked.request("GET", "/../store.sqlite")
            assert asked.getresponse().status == 404
            asked.close()
        finally:
            server.shutdown()
            serving.join()


def test_ten_thousand_runs_make_a_page_of_at_most_three_megabytes(tmp_path: Path) -> None:
    activations = [spec for spec in known_specs() if spec != "identity"][:30]
    records = made_up_records(activations, seeds=84, budgets=(1000, 4000, 16000, 64000), epochs=200)
    assert len(records) > 10_000
    folder = fill(tmp_path, records, ReportInfo(title="Many", planned=len(records)))
    with ExitStack() as stack:
        page = html_page(folder_sections([folder], stack))
    assert len(page.encode()) <= 3_000_000
