"""The stage of a load that others wait for. Imports nothing."""

READING_WEIGHTS = "reading weights"
"""Reported once everything that can be checked without much memory has been checked: what must go first may go now."""
