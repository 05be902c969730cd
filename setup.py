"""The compiled kernels: plain C++17, optional, built without torch.

Everything else about the package is in pyproject.toml. A build that fails leaves a package that works by formulas.
"""

import sys

from setuptools import Extension, setup

FOLDER = "src/boolit/logic/kernels"
# No -ffast-math: infinities, NaN and compensated sums must keep their meaning.
COMPILE = ["-std=c++17", "-O2", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast", "-fvisibility=hidden", "-g0"]
QUIET = ["-Wno-psabi", "-Wno-maybe-uninitialized"]  # vectors never cross a library's border; GCC's own headers warn
OPENMP = [] if sys.platform == "darwin" else ["-fopenmp"]  # Apple's compiler ships none: one thread

setup(
    options={"build_ext": {"parallel": True}},
    ext_modules=[
        Extension(
            "boolit.logic.kernels._gates",
            [f"{FOLDER}/gates.cpp", f"{FOLDER}/python_module.cpp"],
            depends=[
                f"{FOLDER}/{name}.h"
                for name in ("vector_math", "gate_math", "memory", "choices", "forward_backward", "double_backward")
            ],
            extra_compile_args=[*COMPILE, *QUIET, *OPENMP],
            extra_link_args=OPENMP,
            language="c++",
            optional=True,
        ),
        Extension(
            "boolit.lab.kernels._training",
            ["src/boolit/lab/kernels/training.cpp"],
            extra_compile_args=[*COMPILE, *QUIET, *OPENMP],
            extra_link_args=OPENMP,
            language="c++",
            optional=True,
        ),
    ],
)
