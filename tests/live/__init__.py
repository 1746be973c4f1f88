"""Tests of the live views: the Python side, the modules of the page in node, and the page in a bare browser."""
