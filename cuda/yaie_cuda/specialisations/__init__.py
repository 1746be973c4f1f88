"""Which kernels there are and how each is specialised: one module per family of ops, without torch.

Each module has three things, which catalog.py collects:
- `KERNELS`: a tuple of its Kernels;
- `ci()`: yields the Specialisations that CI compiles for every arch, few and telling;
- `everything()`: yields all Specialisations that its ops can ask for.
"""
