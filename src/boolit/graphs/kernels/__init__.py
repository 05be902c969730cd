"""Compiled kernels for gates over index lists and belief propagation. See graphs.cpp."""
