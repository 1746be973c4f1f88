"""Three ways to run a transformers model, and the probe that chooses one."""
