"""The Triton kernels without a GPU: interpreted on the CPU, and compiled for devices that are not here.

Nothing here has run on a device. What is known of one is what its compiler wrote: how memory is read and written, that no
register is spilled, and which instructions round.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import pytest
import test_coefficients
import torch
from mpmath import exp, mp, mpf, polyval

import boolit
from boolit.logic import Program
from boolit.logic.kernels import gpu
from boolit.logic.kernels.library import KernelStatus

pytestmark = pytest.mark.skipif(find_spec("triton") is None, reason="Triton is for Linux")

SPECS = ("or_ail", "xnor_il", "or_and_xnor_ail_d")
SHAPES = ((1024, 1024), (64, 64, 32, 32))
TYPES = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float64: "fp64", torch.float16: "fp16"}
TARGETS = {"sm_80": ("cuda", 80, 32), "sm_90": ("cuda", 90, 32), "gfx942": ("hip", "gfx942", 64)}
NAMES = ("outer", "row", "span", "part", "inner")


def test_interpreted_kernels() -> None:
    """interpreted_triton.py, in a process that has Triton's interpreter."""
    path = Path(__file__).with_name("interpreted_triton.py")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", str(path)]
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=path.parents[2])
    assert done.returncode == 0, done.stdout[-6000:]
    assert "passed" in done.stdout


# ------------------------------------------------------------------------------------------------ for devices not here


@pytest.fixture
def launch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    """The module that launches, which imports Triton; what is compiled goes to the test's own folder."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    from boolit.logic.kernels.gpu import launch

    return launch


def compile_for(
    target: str, launch: ModuleType, program: Program, dtype: torch.dtype, shape: tuple[int, ...], wide: bool = False
) -> dict[str, dict[str, object]]:
    """Forward and backward for the tensor's shape, as a launch would have them compiled: by name, what the compiler wrote."""
    from triton import compile as compile_kernel
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    lanes = TARGETS[target][2]
    block = launch.WARPS * lanes * launch.VECTOR // dtype.itemsize // (1 if program.k == 2 else 2)
    plan = launch.plan(program, dtype, torch.Size(shape), 1, block, wide)
    number, bits = f"*{TYPES[dtype]}", "*u8"
    pointers = {
        "forward": {"x": number, "out": number, "kept": bits},
        "backward": {"grad": number, "saved": bits if program.approximate else number, "grad_x": number},
    }
    written = {}
    for name, signature in pointers.items():
        kernel = getattr(launch.kernels, name)
        constants = getattr(plan, f"{name}_constants")(program.approximate)
        constants |= {size: 1 for size, value in zip(NAMES, plan.sizes, strict=True) if value == 1}
        types = signature | dict.fromkeys(NAMES, "i32") | dict.fromkeys(constants, "constexpr")
        whole = [*signature, *(size for size, value in zip(NAMES, plan.sizes, strict=True) if value % 16 == 0)]
        attributes = {(kernel.arg_names.index(argument),): [["tt.divisibility", 16]] for argument in whole}
        source = ASTSource(kernel, {argument: types[argument] for argument in kernel.arg_names}, constants, attributes)
        written[name] = compile_kernel(source, target=GPUTarget(*TARGETS[target]), options=plan.options).asm
    return written


def transfers(text: str, pattern: str, ignored: str) -> set[str]:
    """The ways numbers come from and go to memory; bits have ways of their own."""
    return {found for found in re.findall(pattern, text) if not re.search(ignored, found)}


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("target", ["sm_80", "sm_90"])
def test_compiled_for_nvidia(
    target: str, spec: str, dtype: torch.dtype, shape: tuple[int, ...], launch: ModuleType, tmp_path: Path
) -> None:
    from triton.backends.nvidia.compiler import get_ptxas

    program = boolit.activation(spec, 1).program
    for name, written in compile_for(target, launch, program, dtype, shape).items():
        ptx = written["ptx"]
        assert isinstance(ptx, str)
        assert written["cubin"]
        assert transfers(ptx, r"\b(?:ld|st)\.global\S*", r"b8$") <= {"ld.global.v4.b32", "st.global.v4.b32"}, name
        assert {"ld.global.v4.b32", "st.global.v4.b32"} <= set(re.findall(r"\b(?:ld|st)\.global\S*", ptx)), name
        assert not re.findall(r"\S*\.(?:ftz|approx|full)\S*", ptx), "what a device computes is what the interpreter computes"
        (tmp_path / "kernel.ptx").write_text(ptx)
        (device,) = re.findall(r"\.target (\w+)", ptx)
        command = [get_ptxas(TARGETS[target][1]).path, "-v", f"--gpu-name={device}", "kernel.ptx", "-o", "kernel.o"]
        report = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=True).stderr
        assert "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads" in report, name


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("spec", SPECS)
def test_compiled_for_amd(spec: str, dtype: torch.dtype, shape: tuple[int, ...], launch: ModuleType) -> None:
    program = boolit.activation(spec, 1).program
    for name, written in compile_for("gfx942", launch, program, dtype, shape).items():
        assembly = written["amdgcn"]
        assert isinstance(assembly, str)
        assert written["hsaco"]
        wide = {"global_load_dwordx4", "global_load_dwordx2", "global_store_dwordx4", "global_store_dwordx2"}
        assert transfers(assembly, r"\bglobal_(?:load|store)_\w+", r"byte") <= wide, name
        assert re.findall(r"\.(?:vgpr|sgpr)_spill_count:\s+(\d+)", assembly) == ["0", "0"], name
        assert ".amdhsa_float_denorm_mode_32 3" in assembly, "subnormal numbers are read and written"
        divisions = 0 if program.approximate else launch.VECTOR // dtype.itemsize  # one for each of a thread's pairs
        assert assembly.count("v_div_fixup_f32") == divisions, "divisions are rounded correctly"


def test_to_bfloat16_a_device_rounds_to_nearest(launch: ModuleType) -> None:
    written = compile_for("sm_80", launch, boolit.activation("xnor_il").program, torch.bfloat16, SHAPES[0])
    assert all("cvt.rn.bf16" in str(kernel["ptx"]) for kernel in written.values())


@pytest.mark.parametrize("target", ["sm_80", "gfx942"])
@pytest.mark.parametrize(
    ("text", "dtype"),
    [
        ("or_il+xnor_ail:pu:k3:adjacent", torch.float64),
        ("xnor_il:d:k64:halves", torch.float32),
        ("and_nail+xnor_ail:d:k5:adjacent", torch.float16),
        ("or_nil+nand_ail:pu:k2:adjacent", torch.float64),
    ],
)
def test_other_types_group_sizes_and_ensembles_are_compiled(
    text: str, dtype: torch.dtype, target: str, launch: ModuleType
) -> None:
    program = Program.parse(text)
    written = compile_for(target, launch, program, dtype, (3, 5 * program.k, 7), wide=True)
    assert all(kernel["cubin" if target == "sm_80" else "hsaco"] for kernel in written.values())


@pytest.mark.parametrize(("kind", "digits"), [("float", 32), ("double", 64)])
@pytest.mark.parametrize("name", ["exp_series", "atanh_series"])
def test_the_polynomials_are_as_near_as_those_of_the_cpu(name: str, kind: str, digits: int, launch: ModuleType) -> None:
    from boolit.logic.kernels.gpu import math as constants

    del launch  # it has Triton's compiled files kept out of the home folder
    cases = [case for case in test_coefficients.SERIES if case[:2] == (kind, name)]
    (_, _, function, low, high), series = cases[0], getattr(constants, f"{name.removesuffix('_series').upper()}_{digits}").value
    with mp.workdps(50):
        worst = mpf(0)
        for i in range(201):
            x = low + (high - low) * i / 200
            missed = abs(polyval(list(series), x) - function(x))
            relative = missed * x**2 / exp(x) if name == "exp_series" else missed * x / (1 + x * function(x))
            worst = max(worst, relative)
        assert worst < mpf("0.3") * test_coefficients.ROUND_OFF[kind]


# ------------------------------------------------------------------------------------------------ bytes, and what is active


@pytest.mark.parametrize(
    ("spec", "forward", "backward"),
    [("or_ail", 6.125, 6.125), ("xnor_il", 6, 10), ("or_and_xnor_ail_d", 10.375, 10.375)],
)
def test_bytes_moved_per_element_are_those_of_the_page_on_speed(
    spec: str, forward: float, backward: float, launch: ModuleType
) -> None:
    plan = launch.plan(boolit.activation(spec).program, torch.float32, torch.Size((1024, 1024)), 1)
    assert plan.bytes_moved() == (forward * 2**20, backward * 2**20)
    page = (Path(__file__).parents[2] / "docs" / "speed.md").read_text(encoding="utf-8")
    assert re.search(rf"\| `{spec}` \|[^\n]*\| {forward:g} \+ {backward:g} = {forward + backward:g} \|", page)


def test_boolit_does_not_import_triton() -> None:
    code = "import sys, torch, boolit; boolit.functional.or_ail(torch.ones(2, 2)); assert 'triton' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_status_says_why_formulas_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "_tried", None)
    assert gpu.status() == KernelStatus(True, f"Triton {metadata.version('triton')}")
    monkeypatch.setattr(metadata, "version", lambda _: "3.2.1+git")
    assert gpu.status() == KernelStatus(False, "Triton 3.2.1+git is too old; install 3.4 or later")
    monkeypatch.undo()
    monkeypatch.setattr(gpu, "_tried", None)
    monkeypatch.setenv("BOOLIT_KERNELS", "0")
    assert not gpu.are_ready()
    assert "BOOLIT_KERNELS=0" in gpu.status().reason


@pytest.mark.skipif(torch.cuda.is_available(), reason="here it works")
def test_where_a_device_does_not_work_formulas_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "_tried", None)
    assert not gpu.are_ready()
    assert re.match(r"Triton \S+ does not work here \(\w+: ", gpu.status().reason)
