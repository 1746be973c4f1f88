"""Fuzz targets for the parsers that are ours, and the inputs that every run replays."""
