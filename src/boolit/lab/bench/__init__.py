"""Speed and memory, as ratios to what everybody knows.

A timing tells, it never decides: nothing here fails because a machine is slow.
"""
