"""The Triton kernels without a GPU: interpreted on the CPU, and compiled for devices that are not here.

Nothing here has run on a device. What is known of one is what its compiler wrote: how memory is read and written, that no
register is spilled, and which instructions round.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from boolit.logic import Program, gpu
from boolit.logic.cpu import KernelStatus

pytestmark = [pytest.mark.check, pytest.mark.skipif(find_spec("triton") is None, reason="Triton is for Linux")]

SPECS = ("or_ail", "xnor_il", "or_and_xnor_ail_d")
SHAPES = ((1024, 1024), (64, 64, 32, 32))
TYPES = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}
TARGETS = {"sm_80": ("cuda", 80, 32), "gfx942": ("hip", "gfx942", 64)}
NAMES = ("units", "share", "row", "span", "start", "out_row")


def test_interpreted_kernels() -> None:
    """Run interpreted_triton.py in a process that has Triton's interpreter."""
    path = Path(__file__).with_name("interpreted_triton.py")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", str(path)]
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=path.parents[2], timeout=900)
    assert done.returncode == 0, done.stdout[-6000:]
    assert "passed" in done.stdout


def compile_for(target: str, spec: str, dtype: torch.dtype, shape: tuple[int, ...]) -> dict[str, dict[str, object]]:
    """Return what the compiler wrote for forward and backward, as a launch would have them compiled."""
    from triton import compile as compile_kernel
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    program = Program.parse(spec)
    block = gpu.WARPS * TARGETS[target][2] * gpu.VECTOR // dtype.itemsize
    plan = gpu.Plan(program, dtype, torch.Size(shape), 1, block)
    _, members, sizes, _ = plan.launches[0]
    number, bits = f"*{TYPES[dtype]}", "*u8"
    keep = program.approximate
    pointers = {
        "forward": ({"x": number, "out": number, "kept": bits}, {"KEEP": keep, "LARGEST": torch.finfo(dtype).max}),
        "backward": ({"grad": number, "saved": bits if keep else number, "grad_x": number}, {"KEPT": keep}),
    }
    written = {}
    for name, (signature, more) in pointers.items():
        kernel = getattr(plan.kernels, name)
        constants = plan.constants | more | {"MEMBERS": members}
        constants |= {size: 1 for size, value in zip(NAMES, sizes, strict=True) if value == 1}
        types = signature | dict.fromkeys(NAMES, "i32") | dict.fromkeys(constants, "constexpr")
        whole = [*signature, *(size for size, value in zip(NAMES, sizes, strict=True) if value % 16 == 0)]
        attributes = {(kernel.arg_names.index(argument),): [["tt.divisibility", 16]] for argument in whole}
        source = ASTSource(kernel, {argument: types[argument] for argument in kernel.arg_names}, constants, attributes)
        written[name] = compile_kernel(source, target=GPUTarget(*TARGETS[target]), options=plan.options).asm
    return written


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("spec", SPECS)
def test_compiled_for_nvidia(spec: str, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    wide = {"ld.global.v4.b32", "st.global.v4.b32"}
    for name, written in compile_for("sm_80", spec, dtype, shape).items():
        ptx = str(written["ptx"])
        transfers = set(re.findall(r"\b(?:ld|st)\.global\S*", ptx))
        assert wide <= transfers, name
        assert {transfer for transfer in transfers if not transfer.endswith("b8")} <= wide, name
        assert not re.findall(r"\S*\.(?:ftz|approx|full)\S*", ptx), "a device computes what the interpreter computes"
        assert dtype is not torch.bfloat16 or spec == "or_ail" or "cvt.rn.bf16" in ptx, "rounded to nearest"


@pytest.mark.parametrize("spec", SPECS)
def test_compiled_for_amd(spec: str) -> None:
    for name, written in compile_for("gfx942", spec, torch.float32, SHAPES[1]).items():
        assembly = str(written["amdgcn"])
        assert re.findall(r"\.(?:vgpr|sgpr)_spill_count:\s+(\d+)", assembly) == ["0", "0"], name
        assert ".amdhsa_float_denorm_mode_32 3" in assembly, "subnormal numbers are read and written"


@pytest.mark.parametrize(
    ("spec", "dtype"),
    [("or_il+xnor_ail_pu", torch.float32), ("and_nail_halves", torch.float16), ("implies_nil", torch.bfloat16)],
)
def test_other_types_and_ensembles_are_compiled(spec: str, dtype: torch.dtype) -> None:
    assert all(kernel["cubin"] for kernel in compile_for("sm_80", spec, dtype, (3, 20, 7)).values())


def test_boolit_does_not_import_triton() -> None:
    code = "import sys, torch, boolit; boolit.functional.or_ail(torch.ones(2, 2)); assert 'triton' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)


def test_the_status_says_why_the_reference_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "_tried", None)
    assert gpu.status() == KernelStatus(True, "Triton")
    monkeypatch.setenv("BOOLIT_KERNELS", "0")
    assert not gpu.is_ready()
    assert "BOOLIT_KERNELS=0" in gpu.status().reason


@pytest.mark.skipif(torch.cuda.is_available(), reason="here it works")
def test_where_a_device_does_not_work_the_reference_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "_tried", None)
    assert not gpu.is_ready()
    assert re.match(r"Triton does not work here \(\w+: ", gpu.status().reason)
