"""Speed and memory, as ratios to what everybody knows.

A timing tells, it never decides: nothing here fails because a machine is slow.
"""

DTYPES = ("float32", "float64", "bfloat16", "float16")
REPEATS = 60
MET, MISSED = "✓", "✗"
