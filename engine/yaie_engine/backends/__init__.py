"""Attention backends: who writes K and V into the blocks and attends over them."""
