"""The two ways in which graphs are computed."""

from __future__ import annotations

import pytest

from boolit.graphs import gather, propagation
from boolit.graphs.gather import LIBRARY


@pytest.fixture(params=["kernel", "torch"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "torch":
        monkeypatch.setattr(gather, "LIBRARY", None)
        monkeypatch.setattr(propagation, "LIBRARY", None)
    elif LIBRARY is None:
        pytest.skip("the kernels are not built")
    return str(request.param)
