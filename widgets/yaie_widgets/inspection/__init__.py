"""The tokens of one answer: what the model was sure of, what else it might have written, where each token lay."""

from .answer import Answer, Blocks, Origin
from .reading import Reading, Vocabulary, read_tokens
from .row import Candidate, Row, read_rows
from .twin import twin_bundle

__all__ = [
    "Answer",
    "Blocks",
    "Candidate",
    "Origin",
    "Reading",
    "Row",
    "Vocabulary",
    "read_rows",
    "read_tokens",
    "twin_bundle",
]
