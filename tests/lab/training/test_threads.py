"""A training uses as many threads as help it."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from boolit.lab.training import Job, train
from boolit.lab.training.threads import TRIED_STEPS, WARM_UP_STEPS, Threads

Config = Callable[..., dict[str, Any]]
LARGE = {"width": [1024, 64], "training": {"batch": 256, "epochs": 1}}


@pytest.fixture(autouse=True)
def _two_threads() -> Iterator[None]:
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(1)


def used(job: Job, seconds: Callable[[int], float]) -> int:
    """The threads that are settled on when a step takes so long with so many."""
    with Threads(job) as threads:
        for _ in range(3 * TRIED_STEPS):
            threads.run(lambda: time.sleep(seconds(torch.get_num_threads())))
        settled = torch.get_num_threads()
    assert torch.get_num_threads() == 2
    return settled


def test_small_networks_get_one_thread(config: Config) -> None:
    assert used(Job.of([config(seed) for seed in range(40)]), lambda _: 0.0) == 1


def test_large_cohorts_get_what_is_faster(config: Config) -> None:
    job = Job.of([config(seed, **LARGE) for seed in range(4)])
    assert used(job, lambda threads: 0.01 if threads == 1 else 0.002) == 2
    assert used(job, lambda threads: 0.002 if threads == 1 else 0.01) == 1


def test_what_the_first_steps_cost_decides_nothing(config: Config) -> None:
    steps = 0

    def seconds(threads: int) -> float:
        nonlocal steps
        steps += 1
        return 0.2 if steps <= WARM_UP_STEPS else 0.01 if threads == 1 else 0.002

    assert used(Job.of([config(seed, **LARGE) for seed in range(4)]), seconds) == 2


def test_a_single_large_run_always_gets_all_threads(config: Config) -> None:
    assert used(Job.of([config(**LARGE)]), lambda threads: 0.002 if threads == 1 else 0.01) == 2


def test_changing_threads_on_the_way_changes_rounding_only(
    config: Config, monkeypatch: pytest.MonkeyPatch, in_double: Callable[[Job], Job], agree: Callable[..., None]
) -> None:
    monkeypatch.setattr("boolit.lab.training.threads.SECONDS_BETWEEN_TRIALS", 0.0)
    job = in_double(Job.of([config(seed, **LARGE) for seed in range(3)]))
    changing = train(job)
    torch.set_num_threads(1)
    one = train(job)
    assert changing is not None
    assert one is not None
    for ours, theirs in zip(changing.outcomes, one.outcomes, strict=True):
        agree(job, ours, theirs)


def test_the_number_of_threads_is_restored_after_an_error(config: Config) -> None:
    with pytest.raises(ZeroDivisionError), Threads(Job.of([config()])):
        raise ZeroDivisionError
    assert torch.get_num_threads() == 2
