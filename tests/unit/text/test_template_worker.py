"""The helper's answers, asked without a process."""

from __future__ import annotations

import pytest

from yaie_engine import template_worker


def ask(template: str, **variables: object) -> dict[str, str]:
    return template_worker.answer({"template": template, "variables": variables, "max_chars": 1000})


@pytest.mark.parametrize(
    ("template", "kind"),
    [
        ("{{ x", "syntax"),
        ("{{ x.__class__ }}", "security"),
        ("{{ namespace(_a=1) }}", "security"),
        ("{% set ns = namespace() %}{% set ns._a = 1 %}", "security"),
        ("{% for i in range(2000) %}a{% endfor %}", "size"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "memory"),
        ("{{ range(10**7) }}", "memory"),
        ("{{ raise_exception('no') }}", "template"),
        ("{{ nothing.at.all }}", "template"),
        ("{{ 1 // 0 }}", "template"),
    ],
)
def test_kinds_of_failure(template: str, kind: str) -> None:
    reply = ask(template, x="text")
    assert reply["error"] == kind
    assert reply["message"]


def test_text() -> None:
    assert ask("{{ x | tojson }}{{ strftime_now('%%') }}", x={"b": [1]}) == {"text": '{"b": [1]}%'}
    assert ask("{% set ns = namespace(a=1) %}{% set ns.a = 2 %}{{ ns.a }}") == {"text": "2"}
    assert ask("{% generation %}{{ x }}{% endgeneration %}", x="y") == {"text": "y"}
    assert ask("{{ x | tojson(sort_keys=true, separators=(',', ':')) }}", x={"b": 1, "a": 2}) == {
        "text": '{"a":2,"b":1}'
    }


def test_a_failure_without_words_names_its_kind() -> None:
    assert ask("{{ raise_exception('') }}")["message"] == "TemplateError"
