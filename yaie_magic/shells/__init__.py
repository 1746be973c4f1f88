"""Completion scripts for shells, written from the tables that the commands parse with."""
