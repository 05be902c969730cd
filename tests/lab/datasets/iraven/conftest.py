"""Problems that several tests look at, made once."""

from __future__ import annotations

import pytest

from boolit.lab.datasets.iraven.problems import Problem, make_problem
from boolit.lab.datasets.iraven.rules import LAYOUTS


@pytest.fixture(scope="session", params=list(LAYOUTS))
def problems(request: pytest.FixtureRequest) -> list[Problem]:
    """Return the first problems of a configuration."""
    return [make_problem(request.param, 1234, index) for index in range(160)]
