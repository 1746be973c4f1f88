"""Which text a kernel is compiled from."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from yaie_cuda import sources

NAME = "silu_and_mul"


@pytest.fixture(autouse=True)
def built_in_at_the_end() -> Iterator[None]:
    yield
    sources.restore()


def test_a_replacement_is_what_is_compiled_until_it_is_restored() -> None:
    before, text = sources.generation, sources.text_of(NAME)
    sources.replace(NAME, text + "// mine\n")
    assert sources.text_of(NAME).endswith("// mine\n") and sources.replaced() == (NAME,)
    assert sources.generation == before + 1
    assert sources.restore() == (NAME,) and sources.text_of(NAME) == text and sources.replaced() == ()
    assert sources.generation == before + 2


def test_what_changes_nothing_is_no_new_generation() -> None:
    before = sources.generation
    sources.replace(NAME, sources.built_in(NAME))
    assert sources.restore() == () and sources.restore([NAME]) == ()
    assert sources.generation == before and sources.replaced() == ()


def test_the_built_in_text_restores() -> None:
    sources.replace(NAME, "mine")
    sources.replace(NAME, sources.built_in(NAME))
    assert sources.replaced() == ()


def test_only_the_named_ones_are_restored() -> None:
    sources.replace(NAME, "a")
    sources.replace("rms_norm", "b")
    assert sources.restore([NAME, "copy_blocks"]) == (NAME,)
    assert sources.replaced() == ("rms_norm",)


def test_a_kernel_that_does_not_exist_cannot_be_replaced() -> None:
    with pytest.raises(FileNotFoundError):
        sources.replace("no_such_kernel", "text")
    assert sources.replaced() == ()
