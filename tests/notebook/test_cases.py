"""Cases from public reports about other notebook tools, with the real engine in a real kernel."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

AT_ONCE = 1.0  # seconds from the button to an idle kernel
FULL = bool(os.environ.get("CI_FULL"))
BRACES = [
    "{'a': 1}",
    "{x for x in y}",
    "{{}}",
    "function f<T>(x: T): {a: T} { return {a: x}; }",
    "$HOME and ${HOME} and {undefined} and {1+1}",
    "%yaie status",
    "!ls",
    "back\\slash \\n and 'quotes\"",
    "tail spaces  \n\n  and lines\n",
]


@pytest.fixture
def kernel(real_kernel: Any) -> Any:
    if not real_kernel.value("len(session.engines)"):
        real_kernel.run("%yaie load tiny --num-blocks 256")
    return real_kernel


def held(kernel: Any) -> int:
    """Blocks in use; the bookkeeping is checked on the way."""
    kernel.run("session.get().llm.check()")
    return int(kernel.value("session.get().llm.snapshot().blocks.held"))


@pytest.mark.parametrize("body", BRACES)
def test_case_01_braces_and_dollars_are_sent_byte_for_byte(kernel: Any, body: str) -> None:
    cell = kernel.run(f"%%generate -m 2 -o r\n{body}")
    assert cell.status == "ok", (cell.stderr, cell.error)
    assert kernel.value("r.prompt") == body.removesuffix("\n")


@pytest.mark.parametrize("body", ["print('x');", "foo(bar))", "a ; b;  ;", "'unclosed", '"""'])
def test_case_02_semicolons_and_open_brackets_silence_nothing(kernel: Any, body: str) -> None:
    cell = kernel.run(f"%%generate -m 3 --ignore-eos -o r\n{body}")
    assert kernel.value("r.prompt") == body
    assert cell.out.startswith("<Completion: 3 tokens") and len(cell.displays) == 1


def test_case_03_quotes_in_the_line(kernel: Any) -> None:
    cell = kernel.run("""%%generate -m 2 -o r --stop="a b" --stop "\\n\\n" --stop "it's"\nhi""")
    assert cell.status == "ok"
    assert kernel.value("r.params.stop") == ["a b", "\n\n", "it's"]


@pytest.mark.parametrize(
    "code",
    [
        "%yaie",
        "%yaie tre",
        "%%generate\n",
        "%%generate\n  \n",
        "%%generate --max-tokns 3\nhi",
        "%%generate -n abc\nhi",
        "%%generate -n -1\nhi",
        "%%generate -m 5000\nhi",
        "%%generate --logit-bias 9999=5\nhi",
        "%%generate -m 1\n" + "x y " * 5000,
        "%%batch -m 1\nok\n---\n" + "x y " * 5000,
        "%yaie load /no/such/folder --as x",
        "%yaie load tiny --dtype int8",
        "%yaie explain nobody",
        "%yaie explain block 99999",
        "%yaie tree --depth -1",
    ],
)
def test_case_04_bad_input_is_one_line_and_the_engine_is_unharmed(kernel: Any, code: str) -> None:
    cell = kernel.run(code)
    said = cell.stderr or "\n".join(cell.error["traceback"])
    assert cell.status == "error" and said.strip().count("\n") == 0, said
    assert held(kernel) == 0
    assert kernel.run("%%generate -m 2\nhi").status == "ok"


def interrupted(kernel: Any, cell: Any, presses: int = 1) -> float:
    pressed = kernel.interrupt()
    for _ in range(presses - 1):
        kernel.interrupt()
    kernel.finish(cell)
    return float(cell.finished - pressed)


def test_case_05_interrupt_of_the_first_load_while_torch_is_imported(real_kernel: Any) -> None:
    cell = real_kernel.first_load
    print(f"idle {(cell.finished - cell.started) * 1000:.0f} ms after the interrupt")
    assert cell.finished - cell.started < 5  # loading torch's libraries holds the interpreter for a while
    assert cell.error["ename"] == "Interrupted" and "nothing was loaded" in cell.error["evalue"]
    assert real_kernel.value("list(session.engines)") == ["default"]  # the load after it worked


@pytest.mark.parametrize("presses", [1, 2])
def test_case_05_interrupt_in_decode(kernel: Any, presses: int) -> None:
    cell = kernel.send("%%generate -m 1900 -o r --ignore-eos\nlong")
    kernel.until(cell, lambda cell: cell.updates > 2)
    seconds = interrupted(kernel, cell, presses)
    print(f"idle {seconds * 1000:.0f} ms after the interrupt")
    assert seconds < AT_ONCE
    assert cell.status == "error" and len(cell.error["traceback"]) == 1
    assert kernel.value("(r.finish_reason, len(r.tokens) > 2, r.text != '')") == ("cancelled", True, True)
    assert held(kernel) == 0
    assert kernel.run("%%generate -m 2\nhi").status == "ok"


def test_case_05_interrupt_at_prefill(kernel: Any) -> None:
    kernel.run("%yaie load tiny --num-blocks 256 --long-prefill-token-threshold 2 --as slow")
    cell = kernel.send("%%generate -m 5 -o r\n" + "long story " * 500)
    kernel.until(cell, lambda cell: kernel.manager.is_alive())
    kernel.settle(0.4)
    assert interrupted(kernel, cell) < AT_ONCE
    assert kernel.value("(r.finish_reason, r.tokens)") == ("cancelled", ())
    assert held(kernel) == 0
    kernel.run("%yaie unload slow")


def test_case_05_interrupt_while_loading(kernel: Any) -> None:
    kernel.run(
        "from yaie_magic.loading import build_llm\n"
        "def slowly(config, progress):\n"
        "    return build_llm(config, lambda what, share: (time.sleep(0.4), progress(what, share)))\n"
        "session.build = slowly"
    )
    for pause in (0.1, 0.5, 0.9):
        cell = kernel.send("%yaie load tiny --num-blocks 128 --as other")
        kernel.settle(pause)
        assert interrupted(kernel, cell) < AT_ONCE
        assert "nothing was loaded" in cell.error["evalue"]
    kernel.run("session.build = build_llm")
    assert kernel.value("list(session.engines)") == ["default"]
    kernel.run("while any(t.name == 'yaie-load' for t in threading.enumerate()): time.sleep(0.05)", timeout=30)
    assert kernel.value("[t.name for t in threading.enumerate() if t.name.startswith('yaie')]") == ["yaie-engine"]


def test_case_06_many_interrupts_leave_no_thread_and_no_block(kernel: Any) -> None:
    before = kernel.value("threading.active_count()")
    for _ in range(50 if FULL else 20):
        cell = kernel.send("%%generate -m 1900 --ignore-eos\nlong")
        kernel.until(cell, lambda cell: bool(cell.displays))
        assert interrupted(kernel, cell) < AT_ONCE
    assert kernel.run("%%generate -m 2\nhi").status == "ok"
    assert held(kernel) == 0
    assert kernel.value("threading.active_count()") <= before


def test_case_08_background_text_stays_in_its_own_cell(kernel: Any) -> None:
    first = kernel.run("%%generate -b -m 120 -o a --ignore-eos\none")
    second = kernel.run("%%generate -b -m 120 -o b --ignore-eos\ntwo")
    others = [kernel.run(f"print('other {n}'); time.sleep(0.15)") for n in range(4)]
    kernel.run("a.wait(), b.wait()")
    kernel.settle(0.3)
    assert [cell.stdout for cell in others] == [f"other {n}\n" for n in range(4)]
    assert all(not cell.displays and not cell.stderr for cell in others)
    for cell, name in ((first, "a"), (second, "b")):
        text = kernel.value(f"{name}.text")
        shown = [each for each in cell.displays if each["text/plain"]]  # what was kept for an early save is empty now
        assert len(shown) == 1 and cell.stdout == "" and cell.updates > 1
        assert shown[0]["text/plain"].startswith(text)
        assert cell.out == "<Completion: running>"


def test_case_08_a_background_batch_too(kernel: Any) -> None:
    cell = kernel.run("%%batch -b -m 40 -o rs --ignore-eos\none\n---\ntwo")
    other = kernel.run("print('other'); [r.wait() for r in rs]; time.sleep(0.3)")
    kernel.settle(0.2)
    assert other.stdout == "other\n" and not other.displays
    assert "[2 of 2]" in cell.displays[0]["text/plain"]


def test_case_13_what_is_shown_only_ever_grows_into_the_final_text(kernel: Any) -> None:
    cell = kernel.run("%%generate -m 150 -o r --ignore-eos -t 50 --seed 3\ncharacters of many bytes")
    final = kernel.value("r.text")
    assert not final.isascii()
    assert cell.updates > 2
    streamed = [shown for shown in cell.shown[:-1] if shown != "<LiveGeneration: one request>"]
    assert len(streamed) > 1 and all(final.startswith(shown.rstrip("\n")) for shown in streamed)
    assert cell.displays[0]["text/plain"].startswith(final)


def test_case_14_inside_a_running_loop(kernel: Any) -> None:
    cell = kernel.run(
        "import asyncio\n"
        "async def work():\n"
        "    await asyncio.sleep(0)\n"
        "    get_ipython().run_cell_magic('generate', '-m 3 -o r', 'hi')\n"
        "    return [delta async for delta in session.get().llm.stream('hi', r.params)]\n"
        "pieces = await work()\n"
        "assert ''.join(pieces) == r.text or r.params.temperature > 0"
    )
    assert cell.status == "ok", cell.error
    assert kernel.value("'nest_asyncio' in __import__('sys').modules") is False


def test_case_14_in_plain_ipython() -> None:
    code = "%load_ext yaie_magic\n%yaie load tiny --num-blocks 64\n"
    code += "get_ipython().run_cell_magic('generate', '-m 8 -t 0 -o r', 'hello there')\n"
    code += "print([r.usage.completion, r.finish_reason])"
    environment = {**os.environ, "NO_COLOR": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "IPython", "--no-banner", "--colors=nocolor", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "[8, 'length']" in done.stdout
    assert "8 tokens · length" in done.stdout and "loaded in" in done.stdout


def test_case_15_unload_frees_while_results_stay(kernel: Any) -> None:
    kernel.run("%yaie unload --all")
    kernel.run("import psutil, yaie_engine.llm\nprocess = psutil.Process()\nrss = []")
    for round in range(5):
        kernel.run("%yaie load tiny --num-blocks 256")
        kernel.run("watched = [weakref.ref(session.get().llm), weakref.ref(session.get().llm._engine)]")
        kernel.run("watched.append(weakref.ref(session.get().llm._engine.runner))")
        for _ in range(5):
            kernel.run("%%generate -m 3\nhi")
        bad = kernel.run("session.get().llm.generate('x y ' * 5000)")  # a traceback with the engine in its frames
        assert bad.status == "error"
        kernel.run("%yaie load tiny --num-blocks 128")
        assert kernel.value("[w() is None for w in watched]") == [True, True, True], round
        kernel.run("%yaie unload")
        kernel.run("gc.collect(); rss.append(process.memory_info().rss)")
    assert kernel.value("len([x for x in Out.values() if type(x).__name__ == 'Completion'])") >= 25
    assert kernel.value("str(Out[max(Out)]) != ''")
    sizes = kernel.value("rss")
    print("MiB after each unload:", [size >> 20 for size in sizes])
    assert sizes[-1] < sizes[1] * 1.05


def test_case_16_loading_twice_makes_one_engine_thread(kernel: Any) -> None:
    threads = "[t.name for t in threading.enumerate() if t.name.startswith('yaie')]"
    kernel.run("engine = id(session.get().llm)")
    for code in ("%load_ext yaie_magic", "%reload_ext yaie_magic", "%yaie load tiny --num-blocks 256"):
        kernel.run(code)
        kernel.run(code)
    assert kernel.value(threads) == ["yaie-engine"]
    assert kernel.value("id(session.get().llm) == engine")
    assert (
        kernel.value("[m.__module__ for m in get_ipython().Completer.custom_matchers].count('yaie_magic.matcher')") == 1
    )


def test_case_17_a_tree_without_dot_on_the_path(kernel: Any) -> None:
    kernel.run("%%generate -m 2 -t 0\nhello tree")
    kernel.run("import os; path = os.environ['PATH']; os.environ['PATH'] = '/nowhere'")
    cell = kernel.run("%yaie tree")
    assert cell.status == "ok" and {"text/plain", "text/html"} <= set(cell.result)
    kernel.run("import yaie_widgets.render as render; find = render.find_renderer; render.find_renderer = lambda: None")
    cell = kernel.run("%yaie tree")
    kernel.run("render.find_renderer = find; os.environ['PATH'] = path")
    assert cell.status == "ok" and "hello tree" in cell.out and cell.stderr == ""


def test_an_ended_request_is_drawn_by_its_result_and_its_id(kernel: Any) -> None:
    kernel.run("%%generate -m 20 -t 0 -o r\nOnce upon a time there was an ended request")
    for name in ("r", kernel.value("r.request_id")):
        for command in ("tree", "blocks"):
            cell = kernel.run(f"%yaie {command} --request {name} --format text")
            assert cell.status == "ok" and kernel.value("r.request_id") in cell.out, (command, name)


def test_case_18_interrupt_while_waiting_then_status(kernel: Any) -> None:
    kernel.run("%%generate -b -m 1500 -o r --ignore-eos\nlong")
    cell = kernel.send("r.wait()")
    kernel.settle(0.3)
    assert interrupted(kernel, cell) < AT_ONCE
    status = kernel.run("%yaie status").stdout
    assert "· ready ·" in status and "1 decode" in status
    kernel.run("r.cancel(); r.wait()")
    assert kernel.value("session.get().llm._engine._thread.is_alive()")
