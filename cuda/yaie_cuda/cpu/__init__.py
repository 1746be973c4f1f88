"""Kernels for the CPU in C++: built at load for the machine's own instructions, on torch's own threads."""
