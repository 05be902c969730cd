"""Problems are functions of configuration, seed and index; the target is anywhere."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from boolit.errors import UserError
from boolit.lab.datasets.raven.configurations import CONFIGURATIONS
from boolit.lab.datasets.raven.matrix import Problem
from boolit.lab.datasets.raven.problems import make_problem


@settings(max_examples=30)
@given(st.sampled_from(list(CONFIGURATIONS)), st.integers(0, 2**40), st.integers(0, 10**6))
def test_the_same_again_and_others_otherwise(configuration: str, seed: int, index: int) -> None:
    found = make_problem(configuration, seed, index)
    assert found == make_problem(configuration, seed, index)
    assert found.context != make_problem(configuration, seed + 1, index).context
    assert found.context != make_problem(configuration, seed, index + 1).context


def test_a_seed_keeps_its_problems_on_every_machine() -> None:
    """Stored results name a seed: another digest means other problems for all of them."""
    texts = [repr(make_problem(configuration, 1234, index)) for configuration in CONFIGURATIONS for index in range(20)]
    assert hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16] == "e4d6201293f7811d"


def test_the_target_is_as_often_in_every_place(problems: list[Problem]) -> None:
    targets = [found.target for found in problems]
    assert chisquare([targets.count(place) for place in range(8)]).pvalue > 1e-3


def test_every_kind_of_rule_occurs(problems: list[Problem]) -> None:
    kinds = {rule.name for found in problems for rules in found.rules for rule in rules}
    assert kinds == {"Constant", "Progression", "Arithmetic", "Distribute_Three"}


def test_unknown_configuration() -> None:
    with pytest.raises(UserError, match="'grid' is not a configuration"):
        make_problem("grid", 0, 0)
