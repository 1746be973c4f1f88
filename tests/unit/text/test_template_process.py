"""Templates of strangers: escapes raise, loops and floods end, the helper survives or is replaced."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from yaie_engine.errors import ConfigError, RequestError, YaieError
from yaie_engine.template_process import TemplateProcess

MESSAGES = [{"role": "user", "content": "hi"}]
ESCAPES = [
    "{{ ''.__class__ }}",
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ messages.__class__ }}",
    "{{ messages['__class__'] }}",
    "{{ messages|attr('__class__') }}",
    "{{ messages|map(attribute='__class__')|list }}",
    "{{ messages|groupby('__class__') }}",
    "{{ [1]|sort(attribute='__class__') }}",
    "{{ ().__class__ is defined }}",
    "{{ '{0.__class__}'.format('') }}",
    "{{ '{x.__class__.__mro__}'.format_map({'x': 1}) }}",
    "{{ self.__init__.__globals__ }}",
    "{{ raise_exception.__globals__ }}",
    "{{ strftime_now.__code__ }}",
    "{{ namespace.__init__.__globals__ }}",
    "{{ namespace(__class__=1) }}",
    "{% set ns = namespace() %}{% set ns.__x = 1 %}",
    "{{ dict.__base__ }}",
    "{{ ''.join.__self__ }}",
    "{{ (1).__reduce__() }}",
    "{{ messages.append(1) }}",
    "{{ messages[0].update({'a': 1}) }}",
    "{{ messages.clear() }}",
    "{% include '/etc/passwd' %}",
    "{% import 'os' as os %}{{ os.system('id') }}",
    "{% extends 'x' %}",
    "{{ lipsum.__globals__['os'] }}",
    "{{ cycler.__init__ }}",
    "{{ joiner.__init__ }}",
    "{{ range.__class__ }}",
]


@pytest.fixture(scope="module")
def helper() -> Iterator[TemplateProcess]:
    process = TemplateProcess(deadline_s=1.0, max_chars=100_000)
    yield process
    process.close()


@pytest.mark.parametrize("template", ESCAPES)
def test_escapes_raise(helper: TemplateProcess, template: str) -> None:
    with pytest.raises((ConfigError, RequestError)):
        helper.render(template, {"messages": MESSAGES})


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}", "longer than 1 s"),
        ("{{ 2 ** (10 ** 9) }}", "longer than 1 s"),
        ("{% for i in range(100000) %}{% for j in range(99) %}flood {% endfor %}{% endfor %}", "100000 characters"),
        ("{{ 'a' * 10**9 }}", "memory|longer"),
        ("{{ range(10**9)|list }}", "memory"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "memory or depth"),
        ("{{ unfinished", "line 1"),
        ("{% unknown %}", "line 1"),
    ],
)
def test_what_cannot_be_rendered_ends_with_its_reason(helper: TemplateProcess, template: str, text: str) -> None:
    started = time.perf_counter()
    with pytest.raises(ConfigError, match=text):
        helper.render(template, {})
    assert time.perf_counter() - started < 10
    assert helper.render("still {{ x }}", {"x": "here"}) == "still here"


def test_a_template_may_refuse_the_messages(helper: TemplateProcess) -> None:
    with pytest.raises(RequestError, match="roles must alternate"):
        helper.render("{{ raise_exception('roles must alternate') }}", {})


def test_variables_must_be_json(helper: TemplateProcess) -> None:
    for value in (object(), {1, 2}, float("nan"), b"x"):
        with pytest.raises(RequestError, match="JSON"):
            helper.render("{{ x }}", {"x": value})


def test_what_templates_of_real_models_use(helper: TemplateProcess) -> None:
    template = (
        "{%- set ns = namespace(n=0) -%}{% for m in messages if m.role != 'system' %}{% set ns.n = ns.n + 1 %}"
        "{% if loop.index > 1 %}{% break %}{% endif %}{% generation %}<{{ m['content'] | trim }}>{% endgeneration %}"
        "{% endfor %}{{ ns.n }} {{ x | tojson }} {{ x | tojson(indent=1) }} {{ x.items() | list }} {{ dict(a=1) }}"
        " {{ strftime_now('%Y') | length }} {{ undefined_name }}{{ 'a,b'.split(',')[1] }} {{ x is mapping }}"
    )
    text = helper.render(template, {"messages": MESSAGES * 2, "x": {"k": "<ü>"}})
    assert text == '<hi>2 {"k": "<ü>"} {\n "k": "<ü>"\n} [(\'k\', \'<ü>\')] {\'a\': 1} 4 b True'


def test_text_of_any_kind_comes_back_whole(helper: TemplateProcess) -> None:
    text = 'line\nbreak\r\u2028 \x00 🦊 \ud83d "quoted" \\ {{ not_jinja }}'
    assert helper.render("{{ x }}", {"x": text}) == text


def test_it_is_quick_once_started(helper: TemplateProcess) -> None:
    """Most of the time, on a machine that does other things, too; and nothing is started anew for a text."""
    helper.render("{{ x }}", {"x": "a"})
    child, times = helper._process, []
    for _ in range(50):
        started = time.perf_counter()
        helper.render("{% for m in messages %}{{ m.content }}{% endfor %}", {"messages": MESSAGES * 10})
        times.append(time.perf_counter() - started)
    assert statistics.median(times) < 0.02 and helper._process is child


def test_threads_take_turns(helper: TemplateProcess) -> None:
    wrong: list[str] = []

    def work(name: str) -> None:
        wrong.extend(name for _ in range(30) if helper.render("{{ x }}", {"x": name}) != name)

    threads = [threading.Thread(target=work, args=(str(i),)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_helper_that_died_is_replaced() -> None:
    process = TemplateProcess()
    assert process.render("{{ 1 }}", {}) == "1"
    child = process._process
    assert child is not None
    child.kill()
    assert process.render("{{ 2 }}", {}) == "2"
    process.close()
    process.close()


def test_an_interrupt_leaves_no_answer_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    process = TemplateProcess()
    process.render("{{ 1 }}", {})
    first = process._process
    assert first is not None
    with monkeypatch.context() as patch:
        patch.setattr(process, "_running", lambda: Interrupting(first))
        with pytest.raises(KeyboardInterrupt):
            process.render("{{ 'old' }}", {})
    assert process.render("{{ 'new' }}", {}) == "new"
    process.close()


class Interrupting:
    """A process whose reply never comes because the user interrupts."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.stdin, self.kill = process.stdin, process.kill
        self.stdout = self

    def readline(self) -> bytes:
        raise KeyboardInterrupt


def test_a_helper_that_cannot_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    with pytest.raises(YaieError, match="helper process"):
        TemplateProcess().render("x", {})


def test_secrets_do_not_reach_the_helper(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "secret")
    process = TemplateProcess()
    process.render("x", {})
    assert process._process is not None
    if os.path.exists(f"/proc/{process._process.pid}/environ"):
        with open(f"/proc/{process._process.pid}/environ", "rb") as file:
            assert b"secret" not in file.read()
    process.close()


def test_importing_starts_nothing_and_a_script_without_main_guard_works() -> None:
    program = (
        "import threading, yaie_engine.template_process as t\n"
        "assert t._shared._process is None and threading.active_count() == 1\n"
        "print(t.render_template('{{ x }}', {'x': 'fine'}))\n"
    )
    command = [sys.executable, "-W", "error", "-"]
    result = subprocess.run(command, input=program, capture_output=True, text=True, timeout=60)
    assert (result.stdout, result.stderr, result.returncode) == ("fine\n", "", 0)


def test_variables_nested_without_end_are_refused(helper: TemplateProcess) -> None:
    value: object = 1
    for _ in range(50_000):
        value = [value]
    with pytest.raises(RequestError, match="must be JSON data"):
        helper.render("{{ x }}", {"x": value})
    assert helper.render("{{ x }}", {"x": 1}) == "1"
