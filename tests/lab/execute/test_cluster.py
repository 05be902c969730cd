"""Cohorts on workers: the same store as without them, whatever dies on the way."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from clusters import Processes, contents, kill, left_behind, start_command, wait_until
from distributed import Client

from boolit.lab.execute import ExecutionSummary, execute
from boolit.lab.execute.cluster import Cluster, split_cohorts, split_for
from boolit.lab.results.store import Store
from boolit.lab.runs import Record
from boolit.lab.studies import Plan, load_study, plan

pytestmark = pytest.mark.usefixtures("one_thread")

SMALL = ["data.train=256", "data.test=64", "training.epochs=4", "training.batch=32"]
FOUR = "sweep.activation=['relu','xnor_ail','max','or_ail']"


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    """A scheduler and two workers."""
    with Processes(tmp_path_factory.mktemp("cluster")) as started:
        started.start_scheduler()
        for number in range(2):
            started.start_worker(number)
        yield started


@pytest.fixture
def cluster(processes: Processes) -> Iterator[Cluster]:
    with Cluster.open(address=str(processes.file)) as opened:
        wait_until(lambda: opened.workers() == 2, "two workers")
        yield opened


def small(seeds: int = 3, *sets: str) -> Plan:
    return plan(load_study("parity"), seeds=seeds, sets=[*SMALL, FOUR, *sets])


def executed(planned: Plan, folder: Path, cluster: Cluster | None = None) -> tuple[ExecutionSummary, list[Record]]:
    with Store(folder) as store:
        summary = execute(planned, store, cluster=cluster)
        assert store.holders() == []
        return summary, store.records()


def test_a_store_from_workers_is_the_same_to_the_last_bit(cluster: Cluster, processes: Processes, tmp_path: Path) -> None:
    planned = small()
    summary, there = executed(planned, tmp_path / "there", cluster)
    _, here = executed(planned, tmp_path / "here")
    assert (summary.trained, summary.failed, summary.undone) == (12, 0, 0)
    assert contents(there) == contents(here)
    for file in (tmp_path / "here" / "weights").iterdir():
        assert file.read_bytes() == (tmp_path / "there" / "weights" / file.name).read_bytes()
    assert executed(planned, tmp_path / "there", cluster)[0].already == 12
    assert left_behind(processes) == []


def test_cohorts_are_divided_only_if_a_worker_would_wait() -> None:
    planned = small(8)
    assert split_cohorts(planned.cohorts, 1) != []
    whole = split_cohorts(planned.cohorts, 2)
    assert sorted(cohort.key for cohort in whole) == sorted(cohort.key for cohort in planned.cohorts)
    costs = [len(cohort.runs) * cohort.runs[0].config.parameters for cohort in whole]
    assert costs == sorted(costs, reverse=True)
    parts = split_cohorts(planned.cohorts, 16)
    assert sorted(run.key for cohort in parts for run in cohort.runs) == sorted(run.key for run in planned.runs)
    longest = max(len(cohort.runs) * cohort.runs[0].config.parameters for cohort in parts)
    assert longest <= sum(costs) / 16 + max(run.config.parameters for run in planned.runs)
    assert len(split_cohorts(planned.cohorts, 10_000)) == len(planned.runs)
    assert len(split_cohorts(planned.cohorts, 1, memory=1)) == len(planned.runs)


def test_a_divided_cohort_and_a_worker_with_more_threads_change_results_by_rounding(tmp_path: Path) -> None:
    """The bound of tests/lab/execute/test_execute.py for cohorts of other sizes, for the same training: 1e-4."""
    one = ["sweep.activation=['xnor_ail']", "training.optimiser='sgd'", "training.learning_rate=0.01"]
    planned = plan(load_study("parity"), seeds=8, sets=[*SMALL, *one])
    _, here = executed(planned, tmp_path / "here")
    with Processes(tmp_path) as mixed:
        mixed.start_scheduler()
        mixed.start_worker(0, threads=1)
        mixed.start_worker(1, threads=2)
        with Cluster.open(address=str(mixed.file)) as cluster:
            wait_until(lambda: cluster.workers() == 2, "two workers")
            assert len(split_for(cluster, planned.cohorts, 2)) == 2
            _, there = executed(planned, tmp_path / "there", cluster)
    assert {record.environment["threads"] for record in there} == {1, 2}
    others = {record.key: record for record in there}
    assert others.keys() == {record.key for record in here}
    for record in here:
        for name in ("train_loss", "test_loss"):
            assert record.history[name] == pytest.approx(others[record.key].history[name], abs=1e-4)


def test_workers_that_are_killed_lose_nothing(tmp_path: Path) -> None:
    """Of three workers one after the other is killed and replaced, while each has a cohort; the store is the same."""
    planned = small(4, "training.epochs=60")
    with Processes(tmp_path) as processes:
        processes.start_scheduler()
        alive = [processes.start_worker(number) for number in range(3)]
        command = start_command(
            *(
                "run",
                "parity",
                "--seeds",
                "4",
                *(part for each in [*SMALL[:2], "training.batch=32", "training.epochs=60", FOUR] for part in ("--set", each)),
            ),
            *("--out", str(tmp_path / "there"), "--cluster", str(processes.file)),
        )
        with Client(processes._address(), set_as_default=False) as client:
            for number in range(4):
                victim = alive.pop(0)
                wait_until(lambda: executing(client) or command.poll() is not None, "a cohort that is being trained")
                kill(victim)
                alive.append(processes.start_worker(3 + number))
        said = command.communicate(timeout=240)
    assert command.returncode == 0, said
    with Store(tmp_path / "there") as store:
        there = store.records()
    assert contents(there) == contents(executed(planned, tmp_path / "here")[1])


@pytest.mark.slow
def test_the_parity_study_on_four_workers_of_which_one_dies_every_three_seconds(tmp_path: Path) -> None:
    """Ten deaths, each worker replaced; the store is that of a single process, run by run, to the last bit."""
    deaths = 10
    with Processes(tmp_path) as processes:
        processes.start_scheduler()
        alive = [processes.start_worker(number) for number in range(4)]
        command = start_command("run", "parity", "--out", str(tmp_path / "there"), "--cluster", str(processes.file))
        with Client(processes._address(), set_as_default=False) as client:
            wait_until(lambda: executing(client), "a cohort that is being trained")
            for number in range(deaths):
                time.sleep(3)
                assert command.poll() is None, "it was done before all deaths"
                kill(alive.pop(0))
                alive.append(processes.start_worker(4 + number))
        said = command.communicate(timeout=600)
    assert command.returncode == 0, said
    with Store(tmp_path / "there") as store:
        there = store.records()
    assert contents(there) == contents(executed(plan(load_study("parity")), tmp_path / "here")[1])


def executing(client: Client) -> bool:
    return any(client.processing().values())
