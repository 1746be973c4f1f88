"""Panics of libraries written in Rust: they pass every `except Exception`, and their class has no name to import."""

from __future__ import annotations


def is_panic(error: BaseException) -> bool:
    """Whether a Rust library, such as that of tokenizers, gave up in the middle of a call. It can be called again."""
    return type(error).__name__ == "PanicException" and not isinstance(error, Exception)


def unless_foreign(error: BaseException) -> BaseException:
    """`error` where it tells of a call that failed; raises what ends more than a call, such as an interrupt."""
    if isinstance(error, Exception) or is_panic(error):
        return error
    raise error
