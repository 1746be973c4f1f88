"""The kernels of YAIE Magic, their compiler and their torch reference."""
