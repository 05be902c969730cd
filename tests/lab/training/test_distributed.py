"""One training by two processes, as torchrun starts them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from boolit.lab.datasets import load, source
from boolit.lab.models import family
from boolit.lab.training import Job, Recipe, train

pytestmark = pytest.mark.check

PROGRAM = """
import json, sys
from pathlib import Path
import torch
from boolit.lab.datasets import load, source
from boolit.lab.models import family
from boolit.lab.training import Checkpoint, Job, Recipe, train
from boolit.lab.training.distributed import is_leader, processes, rank

torch.set_num_threads(1)
folder = Path(sys.argv[1])
recipe = Recipe(epochs=2, batch=32, learning_rate=0.01, schedule="constant")
with processes():
    data = load(source({"name": "parity", "train": 256, "test": 101}))
    job = Job(data, family({"name": "mlp"}), "or_ail", (8, 4), (recipe,), (3,))
    unbroken = train(job, keep_weights=True)
    checkpoint = Checkpoint(folder) if is_leader() else None
    # The process that is not the leader stops the training.
    assert train(job, checkpoint=checkpoint, callback=lambda t: rank() == 0 or t.steps < 11) is None
    resumed = train(job, checkpoint=checkpoint)
    if is_leader():
        histories = [result[0].history for result in (unbroken, resumed)]
        (folder / "histories.json").write_text(json.dumps(histories))
"""


def test_two_processes_train_as_one_does(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    (tmp_path / "program.py").write_text(PROGRAM)
    command += [str(tmp_path / "program.py"), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    unbroken, resumed = json.loads((tmp_path / "histories.json").read_text())
    assert unbroken == resumed
    recipe = Recipe(epochs=2, batch=32, learning_rate=0.01, schedule="constant")
    data = load(source({"name": "parity", "train": 256, "test": 101}))
    result = train(Job(data, family({"name": "mlp"}), "or_ail", (8, 4), (recipe,), (3,)))
    assert result is not None
    for name, values in result[0].history.items():
        assert unbroken[name] == pytest.approx(values, rel=1e-3)
