"""The compiled gates: their C++ source, the loader, and the torch operators that choose kernel or formula."""

from boolit.logic.kernels.gpu import status as gpu_status
from boolit.logic.kernels.library import KernelStatus, status

__all__ = ["KernelStatus", "gpu_status", "status"]
