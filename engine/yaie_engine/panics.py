"""Panics of libraries written in Rust: they pass every `except Exception`, and their class has no name to import.

Where one happens is also written to file descriptor 2, by a hook that only Rust code of that very library could change.
That line stays: a descriptor belongs to the process, and to put another in its place for the time of a call would take
what other threads, libraries and child processes write meanwhile. A thread with a table of descriptors of its own is no
way out either, since whatever Python finalises on it would be closed there and stay open elsewhere.
"""

from __future__ import annotations


def is_panic(error: BaseException) -> bool:
    """Whether a Rust library, such as that of tokenizers, gave up in the middle of a call. It can be called again."""
    return type(error).__name__ == "PanicException" and not isinstance(error, Exception)


def unless_foreign(error: BaseException) -> BaseException:
    """`error` where it tells of a call that failed; raises what ends more than a call, such as an interrupt."""
    if isinstance(error, Exception) or is_panic(error):
        return error
    raise error
