"""Which mistakes are made of a piece of code, and which are not."""

from __future__ import annotations

import pytest

from tests.mutation.mutant import Mutant
from tests.mutation.operators import mutants_in, mutants_of
from tests.mutation.targets import TARGETS


def of(text: str) -> list[Mutant]:
    return mutants_in(text.encode(), "some.module")


def after(text: str) -> set[str]:
    """The changed lines."""
    return {mutant.diff[1] for mutant in of(text)}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = a < b <= c", {"x = a <= b <= c", "x = a < b < c"}),
        ("x = (a)  is not (b)", {"x = (a)  is (b)"}),
        ("x = a not in b", {"x = a in b"}),
        ("x = a + b * c", {"x = a - b * c", "x = a + b + c"}),
        ("x = a and (b or c)", {"x = (a or (b or c))", "x = a", "x = (b or c)", "x = a and (b)", "x = a and (c)"}
         | {"x = a and ((b and c))"}),
        ("x = not a", {"x = a"}),
        ("x = -1", {"x = 1", "x = -2"}),
        ("x = True", {"x = False"}),
        ("x = 'a'", {"x = 'aXX'"}),
        ("x = b'a'", {"x = b'aXX'"}),
        ("x = a[b:c]", {"x = a[:c]", "x = a[b:]"}),
        ("x = min(a)", {"x = max(a)"}),
        ("x = f(a, key=b, more=c)", {"x = f(a,  more=c)", "x = f(a, key=b, )"}),
        ("x = [a for a in b if c]", {"x = [a for a in b if (not c)]", "x = [a for a in b if True]"}),
        ("x = a if b else c", {"x = a if (not b) else c"}),
        ("x.y = z", {"pass"}),
        ("del x[y]", {"pass"}),
        ("x += y", {"pass", "x -= y", "x = y"}),
        ("raise Error(1 + 2, 'text')", {"pass"}),
        ("if a:\n    f()", {"if (not a):", "pass"}),
        ("for a in b:\n    continue", {"break"}),
        ("def f():\n    return a", {"return None"}),
    ],
)  # fmt: skip
def test_each_kind_of_mistake(text: str, expected: set[str]) -> None:
    assert after(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "import a\nfrom b import c",
        '"""Text."""\ndef f():\n    """Text."""',
        "fault_point('plan', seq)",
        "x: Literal['a', 'b']",
        "X = Literal['a', 'b']",
        "T = TypeVar('T', bound=int)",
        "__slots__ = ('a', 'b')",
        "if TYPE_CHECKING:\n    x = 1",
        "x = zip(a, b, strict=True)",
        "x = f'{a + 1}'",
        "@dataclass(frozen=True)\nclass X:\n    a: int",
        "x = dict[str, int]()",
    ],
)
def test_what_says_nothing_is_left_alone(text: str) -> None:
    assert after(text) == set()


def test_a_mutant_knows_where_it_is_wherever_it_is_moved() -> None:
    text = "class A:\n    def f(self):\n        return [\n            1,\n        ]\n"
    one, moved = (next(each for each in of(start + text) if each.new == b"2") for start in ("", "import x\n\n"))
    assert (one.line, one.where, one.diff) == (4, "A.f", ("1,", "2,")) and one.source == text.replace("1", "2")
    assert moved.line == 6 and moved.key == one.key and one.key[0] == "some.module"


def test_a_name_that_is_set_once_is_not_taken_away() -> None:
    """It would be missing at once, which shows nothing about a test."""
    assert after("def f(a):\n    b = g(a)\n    return b") == {"return None"}
    assert "pass" in after("def f(a):\n    a = g(a)\n    return a")


def test_every_file_gives_many_of_which_no_two_are_the_same() -> None:
    for module in TARGETS:
        mutants = mutants_of(module)
        assert len(mutants) >= 15 and len({mutant.source for mutant in mutants}) == len(mutants), module
        for mutant in mutants[:: len(mutants) // 7]:
            compile(mutant.source, module, "exec")
