"""The lab on another device than the CPU: tests/devices, in processes that have a stand-in for one.

torch's autograd makes its queues at the first backward of a process and knows no device that is registered later; and other
tests would see one device too many.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.check

FOLDER = Path(__file__).with_name("devices")
HALVES = (("test_families.py", "test_standin.py"), ("test_commands.py", "test_sklearn.py", "test_training.py"))


@pytest.mark.parametrize("files", HALVES, ids=lambda files: files[0])
def test_on_a_stand_in(files: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    environment = {**os.environ, "BOOLIT_TEST_STANDIN": "1"}
    done = subprocess.run(
        [*command, *(str(FOLDER / name) for name in files)], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-1000:]


def test_every_file_is_run() -> None:
    assert sorted(name for half in HALVES for name in half) == sorted(path.name for path in FOLDER.glob("test_*.py"))
