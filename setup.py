"""Build the compiled kernels: plain C++17, optional, without torch.

Everything else about the package is in pyproject.toml. If a build fails, the package uses its pure-torch implementation.
"""

import copy
import os
import platform
import sys

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

# No -ffast-math: infinities, NaN and compensated sums must keep their meaning.
COMPILE = ["-std=c++17", "-O2", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast", "-fvisibility=hidden", "-g0"]
QUIET = ["-Wno-psabi", "-Wno-maybe-uninitialized"]  # vectors never cross a library's border; GCC's own headers warn
OPENMP = [] if sys.platform == "darwin" else ["-fopenmp"]  # Apple's compiler has none: one thread
# Exact gates take two vectors at a time; GCC weaves them together only if it schedules before it allocates registers.
WEAVE = ["-fschedule-insns", "-fsched-pressure"]
FETCH = ["-mprfchw"]  # lines that will be written; an instruction that does nothing on processors without it
INSTRUCTIONS = {"baseline": []}
if platform.machine().lower() in ("x86_64", "amd64"):
    INSTRUCTIONS["x86_64_v3"] = ["-march=x86-64-v3", *FETCH, *WEAVE]
    INSTRUCTIONS["x86_64_v4"] = ["-march=x86-64-v4", "-mprefer-vector-width=512", *FETCH, *WEAVE]


SHARED = ["../../logic/kernels/pairs.h", "../../logic/kernels/vector_math.h"]


class BuildInParallel(build_ext):
    """Build extensions side by side, each in its own folder, since several are compiled from one source."""

    def build_extension(self, ext: Extension) -> None:
        command = copy.copy(self)
        command.build_temp = os.path.join(self.build_temp, ext.name)
        super(BuildInParallel, command).build_extension(ext)


def extension(package: str, name: str, source: str, headers: list[str], options: list[str]) -> Extension:
    folder = f"src/{package.replace('.', '/')}"
    return Extension(
        f"{package}.{name}",
        [f"{folder}/{source}"],
        depends=[f"{folder}/{header}" for header in headers],
        extra_compile_args=[*COMPILE, *QUIET, *OPENMP, *options],
        extra_link_args=OPENMP,
        language="c++",
        optional=True,
    )


setup(
    cmdclass={"build_ext": BuildInParallel},
    options={"build_ext": {"parallel": True}},
    ext_modules=[
        *(
            extension("boolit.logic.kernels", f"_gates_{name}", "gates.cpp", ["pairs.h", "vector_math.h"], options)
            for name, options in INSTRUCTIONS.items()
        ),
        *(
            extension("boolit.graphs.kernels", f"_graphs_{name}", "graphs.cpp", SHARED, options)
            for name, options in INSTRUCTIONS.items()
        ),
        extension("boolit.lab.kernels", "_training", "training.cpp", [], []),
    ],
)
