"""The GPU check: every kernel and the engine on a real GPU, right first and fast second, in one run of minutes."""
