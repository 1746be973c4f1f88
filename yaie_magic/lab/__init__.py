"""The kernel lab in the notebook: a kernel's source, its check, its place in the running engine."""
