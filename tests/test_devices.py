"""The tests in tests/devices, which use a stand-in for a GPU, in processes of their own.

The device must be registered before the first backward of a process, and other tests must not see it.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.check

FOLDER = Path(__file__).with_name("devices")


@pytest.mark.parametrize("file", sorted(FOLDER.glob("test_*.py")), ids=lambda file: file.stem)
def test_on_a_stand_in(file: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", str(file)]
    environment = {**os.environ, "BOOLIT_TEST_STANDIN": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-1000:]
