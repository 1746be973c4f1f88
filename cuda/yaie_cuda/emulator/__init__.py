"""Kernels on the CPU: the same sources built by a C++ compiler, every CUDA thread a fiber."""
