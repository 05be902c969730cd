"""``import boolit`` needs torch alone, and little time."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import sys, time
started = time.perf_counter()
import torch
loaded, with_torch = set(sys.modules), time.perf_counter()
import boolit
done = time.perf_counter()
print(*sorted(set(sys.modules) - loaded))
print(f"import torch {with_torch - started:.2f} s, import boolit {1000 * (done - with_torch):.0f} ms more")
"""
HEAVY = ("torch._dynamo", "torch._inductor", "torch.onnx", "torch.testing")


def test_import_needs_torch_alone() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    modules, times = done.stdout.splitlines()
    print(times)
    packages = {name.partition(".")[0] for name in modules.split()}
    assert {name for name in packages - sys.stdlib_module_names if not name.startswith("_sysconfigdata")} <= {"boolit", "torch"}
    assert not [name for name in modules.split() if name.startswith(HEAVY)]
    assert "boolit.lab" not in modules
