"""Engines behind an address: our own server, or any other with the OpenAI API."""

from __future__ import annotations

from .faults import KeyNeeded, RemoteError
from .llm import RemoteLLM
from .probe import connect

__all__ = ["KeyNeeded", "RemoteError", "RemoteLLM", "connect"]
