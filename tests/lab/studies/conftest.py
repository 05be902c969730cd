"""A small study, to be made wrong in every way."""

from collections.abc import Callable
from pathlib import Path

import pytest

STUDY = """\
title = "A small study"

[data]
name = "parity"
train = 64

[model]
name = "mlp"

[sweep]
activation = [
    "relu",
    "xnor_ail",  # the second
]
width = [[4, 2]]
seeds = 3

[training]
learning_rate = 0.01
epochs = 2
batch = 32

[metric]
name = "accuracy"

[hparams.xnor_ail]
learning_rate = 0.02

[profiles.quick.training]
epochs = 1

[profiles.paper.sweep]
params = [40, 80]
depth = [1, 2]
"""


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Writes the study with some of its text replaced."""

    def written(*changes: tuple[str, str], name: str = "small.toml") -> Path:
        text = STUDY
        for old, new in changes:
            assert old in text
            text = text.replace(old, new, 1)
        path = tmp_path / name
        path.write_text(text)
        return path

    return written
