"""Engines in other processes: the client, its views, detached engines."""
