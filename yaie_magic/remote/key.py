"""The key of a server, which shows in nothing that is printed."""

from __future__ import annotations

from yaie_engine.errors import ConfigError


class Key:
    """Holds a key; only `header` has its text.

    Raises:
        ConfigError: it has characters that no header can have.
    """

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        if not (text.isascii() and text.isprintable() and " " not in text and text):
            raise ConfigError("a key is made of visible ASCII characters")
        self._text = text

    @property
    def header(self) -> dict[str, str]:
        """What a request carries."""
        return {"authorization": f"Bearer {self._text}"}

    def hidden_in(self, text: str) -> str:
        """A text without the key."""
        return text.replace(self._text, "***")

    def __repr__(self) -> str:
        return "Key(***)"

    def __reduce__(self) -> str | tuple[object, ...]:
        raise TypeError("a key is not written anywhere")
