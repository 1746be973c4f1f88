"""One base for the values a person types: unknown names and bad values become one clear line."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, ValidationError

from .errors import YaieError

_BOUNDS = (("ge", ">="), ("gt", ">"), ("le", "<="), ("lt", "<"))


def nearest(name: str, names: Iterable[str]) -> str | None:
    """The valid name closest to `name`, or None when nothing is close."""
    found = difflib.get_close_matches(name, list(names), n=1, cutoff=0.6)
    return found[0] if found else None


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """'; did you mean X?' or nothing."""
    near = nearest(name, names)
    return f"; did you mean {near!r}?" if near else ""


class Checked(BaseModel):
    """A frozen pydantic model whose failures are raised as `error` with field, value and allowed range."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=False, allow_inf_nan=False, arbitrary_types_allowed=True
    )
    error: ClassVar[type[YaieError]] = YaieError

    def __init__(self, **values: Any) -> None:
        unknown = [name for name in values if name not in type(self).model_fields]
        if unknown:
            name = unknown[0]
            raise type(self).error(
                f"{type(self).__name__}: unknown name {name!r}{did_you_mean(name, type(self).model_fields)}"
            )
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise type(self).error(f"{type(self).__name__}: {describe(error, type(self))}") from None

    def replace(self, **changes: Any) -> Any:
        """A copy with `changes`, validated like a new object."""
        return type(self)(**{**{name: getattr(self, name) for name in self.model_fields_set}, **changes})


def describe(error: ValidationError, model: type[BaseModel]) -> str:
    """The first problem of a pydantic error as `field=value: what is allowed`; of a secret (a field without repr) no
    value."""
    first = error.errors(include_url=False)[0]
    field = str(first["loc"][0]) if first["loc"] else ""
    where = ".".join(str(part) for part in first["loc"])
    allowed = allowed_range(model, field)
    reason = first["msg"].removeprefix("Value error, ").removeprefix("Assertion failed, ")
    info = model.model_fields.get(field)
    value = f"={_short(first['input'])}" if info is None or info.repr else ""
    text = f"{where}{value}: {reason}" if where else reason
    return text + (f" (allowed: {allowed})" if allowed else "")


def allowed_range(model: type[BaseModel], field: str) -> str:
    """The bounds of a numeric field in words, from its metadata; '' when it has none."""
    info = model.model_fields.get(field)
    if info is None:
        return ""
    found = [
        f"{sign} {getattr(item, bound)}"
        for item in info.metadata
        for bound, sign in _BOUNDS
        if getattr(item, bound, None) is not None
    ]
    return " and ".join(found)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
