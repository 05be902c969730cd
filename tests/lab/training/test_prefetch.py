"""Batches made ahead are those that would have been made on time."""

import threading

import pytest
import torch

from boolit.lab.training.threads import Prefetch


def test_each_number_is_made_once_and_one_ahead_at_most() -> None:
    made: list[int] = []
    taken = Prefetch(lambda number: made.append(number) or number * 10, end=4)
    for number in range(4):
        assert taken.take(number) == number * 10
        assert len(made) <= number + 2
    assert made == [0, 1, 2, 3]


def test_a_jump_is_not_answered_with_what_was_ahead() -> None:
    taken = Prefetch(lambda number: number, end=100)
    assert [taken.take(number) for number in (0, 7, 8, 3)] == [0, 7, 8, 3]


def test_the_next_is_made_beside_the_present() -> None:
    threads: dict[int, str] = {}
    taken = Prefetch(lambda number: threads.update({number: threading.current_thread().name}), end=2)
    taken.take(0)
    taken.take(1)
    assert threads[0] == threading.main_thread().name
    assert threads[1].startswith("prefetch")


def test_an_error_ahead_is_raised_when_its_time_comes() -> None:
    taken = Prefetch(lambda number: 1 // (1 - number), end=3)
    assert taken.take(0) == 1
    with pytest.raises(ZeroDivisionError):
        taken.take(1)


def test_the_threads_of_the_main_thread_stay() -> None:
    torch.set_num_threads(2)
    try:
        seen = Prefetch(lambda _: torch.get_num_threads(), end=2)
        assert (seen.take(0), seen.take(1), torch.get_num_threads()) == (2, 1, 2)
    finally:
        torch.set_num_threads(1)
