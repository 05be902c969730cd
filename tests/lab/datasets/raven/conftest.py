"""Problems that several tests look at, made once."""

from __future__ import annotations

import pytest

from boolit.lab.datasets.raven.configurations import CONFIGURATIONS
from boolit.lab.datasets.raven.matrix import Problem
from boolit.lab.datasets.raven.problems import make_problem


@pytest.fixture(scope="session", params=list(CONFIGURATIONS))
def problems(request: pytest.FixtureRequest) -> list[Problem]:
    """The first of a configuration."""
    return [make_problem(request.param, 1234, index) for index in range(240)]
