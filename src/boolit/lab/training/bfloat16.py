"""Whether this machine can compute in bfloat16.

Some virtual machines announce AMX, Intel's instructions for it, and do not have them: torch believes the announcement, and its
first product of two matrices ends the process. Nothing but trying tells, and the trial must be another process.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from functools import lru_cache

from boolit.lab.errors import UserError

TRIAL = "import torch; a = torch.ones(64, 64, dtype=torch.bfloat16); a @ a"


@lru_cache(1)
def check_bfloat16() -> None:
    """Refuses where a product in bfloat16 is an illegal instruction."""
    if subprocess.run([sys.executable, "-c", TRIAL], check=False).returncode == -signal.SIGILL:
        raise UserError(
            "training.precision is 'bfloat16', but this machine announces AMX instructions for it that it does not have; "
            "set the environment variable ONEDNN_MAX_CPU_ISA=AVX512_CORE_FP16, or use 'float16' or 'float32'"
        )
