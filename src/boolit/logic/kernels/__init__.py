"""C++ sources and compiled libraries of the kernels."""
