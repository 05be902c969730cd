"""Random numbers are uniform, differ where they should, and depend on nothing but seed, purpose and step."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from boolit.lab.common.random import derive, generator, keys, normal, uniform

SEEDS = st.lists(st.integers(-(2**40), 2**40), min_size=1, max_size=6)


@settings(max_examples=30, deadline=None)
@given(SEEDS, st.integers(0, 10**6), st.data())
def test_a_run_draws_the_same_in_any_company(seeds: list[int], step: int, data: st.DataObject) -> None:
    chosen = data.draw(st.integers(0, len(seeds) - 1))
    together = uniform(keys(seeds, "a"), step, (3, 5))
    alone = uniform(keys([seeds[chosen]], "a"), step, (3, 5))
    assert torch.equal(together[chosen], alone[0])


def test_uniform_numbers_are_uniform_and_independent() -> None:
    drawn = uniform(keys(range(20), "a"), 7, (1000,))
    assert float(drawn.min()) >= 0
    assert float(drawn.max()) < 1
    assert stats.kstest(drawn.flatten().numpy(), "uniform").pvalue > 1e-3
    neighbours = torch.corrcoef(torch.cat([drawn[:, :-1].reshape(1, -1), drawn[:, 1:].reshape(1, -1)]))
    assert abs(float(neighbours[0, 1])) < 0.03
    between_runs = torch.corrcoef(drawn).fill_diagonal_(0)
    assert float(between_runs.abs().max()) < 0.15


def test_normal_numbers_are_normal() -> None:
    drawn = normal(keys(range(20), "a"), 0, (1000,))
    assert stats.kstest(drawn.flatten().numpy(), "norm").pvalue > 1e-3


def test_every_step_and_purpose_has_its_own_numbers() -> None:
    streams = [uniform(keys([1], purpose), step, (50,)) for purpose in ("a", "b") for step in (0, 1, 2)]
    assert all(not torch.equal(a, b) for i, a in enumerate(streams) for b in streams[:i])
    correlation = torch.corrcoef(torch.cat([uniform(keys([1], "a"), step, (2000,)) for step in (0, 1)])).fill_diagonal_(0)
    assert float(correlation.abs().max()) < 0.08


def test_words_are_told_apart_where_they_join() -> None:
    assert derive(1, "ab", "c") != derive(1, "a", "bc")
    assert derive(12, 3) != derive(1, 23)


def test_generators_repeat() -> None:
    first, again, other = (torch.rand(3, generator=generator(seed, "x")) for seed in (5, 5, 6))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
