"""Whole-state snapshots: prefix reuse for models whose state cannot be cut into blocks."""
