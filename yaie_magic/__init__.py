"""YAIE Magic: a real LLM inference engine inside a notebook session.

``%load_ext yaie_magic`` registers the magics. Importing this package loads nothing heavy.
"""

__version__ = "0.1.0"
