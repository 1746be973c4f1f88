"""Text of a model, safe to print."""

from yaie_engine.printable import printable as printable
