"""What a terminal obeys is in nothing that the magics print: not of prompts, not of answers, not of what was typed."""

from __future__ import annotations

from typing import Any

from IPython.utils.capture import capture_output

from tests.widgets.payloads import PAYLOADS

OBEYED = {
    *range(0x09), *range(0x0B, 0x20), *range(0x7F, 0xA0), 0x061C, 0x200E, 0x200F,
    *range(0x2028, 0x202F), *range(0x2066, 0x206A), 0xFEFF, *range(0xD800, 0xE000),
}  # fmt: skip
"""Controls but newline and tab, what turns or hides text, halves of characters."""
VIEWS = [
    "status", "tree", "blocks", "timeline", "trace", "explain", "history 20", "insights", "inspect", "metrics",
    "dashboard", "replay", "cache save", "cache list",
]  # fmt: skip
STEERING = [
    "\x1b[31mred\x1b[0m \x1b]8;;http://x\x07link",
    "\x08\x08\x08erased",
    "\u202ereversed\u202c \u2066isolate\u2069",
    "zero\ufeffwidth",
]
MISTAKES = [
    "{}", "load '{}'", "load tiny --as '{}'", "tree --{}", "tree --engine '{}'", "explain '{}'", "cancel '{}'",
    "connect '{}'", "trace --save '/nonexistent/{}'", "kernels '{}'",
    "replay --load '/nonexistent/{}'", "unload '{}'", "inspect '{}'", "attach '{}'", "restart '{}'",
]  # fmt: skip


def prompts() -> list[str]:
    """Those of the sixty that hold what is obeyed; no prompt may have halves of characters."""
    whole = [text[:300].encode("utf-8", "replace").decode() for text in PAYLOADS]
    return [text for text in whole if obeyed([text])]


def shown(shell: Any, code: str) -> list[str]:
    """All that a cell prints, shows and returns, in every form that it has."""
    with capture_output() as captured:
        found = shell.run_cell(code)
    texts = [
        captured.stdout,
        captured.stderr,
        repr(found.result),
        *(str(getattr(found.result, "text", "")).split("\0")),
    ]
    for output in captured.outputs:
        texts += [str(text) for text in output.data.values()]
    error = found.error_in_exec or found.error_before_exec
    return [*texts, "" if error is None else str(error)]


def obeyed(texts: list[str]) -> set[str]:
    return {f"U+{ord(char):04X}" for text in texts for char in text if ord(char) in OBEYED}


def test_prompts_of_strangers_in_every_view(real: Any, tmp_path: Any) -> None:
    real(f"%yaie load tiny --num-blocks 512 --prefix-store {tmp_path}/store")
    real("%yaie trace on --steps 2")
    shell = real.shell
    shell.user_ns["strange"] = prompts()
    assert obeyed(shown(shell, "%%batch -m 2 --from strange\n")) == set()
    assert len(shell.user_ns["_yaie"]) == len(prompts()) >= 8
    found = {line: obeyed(shown(shell, f"%yaie {line}")) for line in VIEWS}
    assert {line: chars for line, chars in found.items() if chars} == {}
    text = "".join(shown(shell, "%yaie history 20")) + "".join(shown(shell, "%yaie cache list"))
    assert "\\x1b[31mred" in text or "␛[31mred" in text, "no payload was shown, so nothing was tested"


def test_what_was_typed_wrongly_is_repeated_safely(run: Any) -> None:
    found = {}
    for line in MISTAKES:
        for word in STEERING:
            texts = shown(run.shell, f"%yaie {line.format(word)}")
            assert not any("Traceback" in text for text in texts), line
            if chars := obeyed(texts):
                found[line] = chars
    assert found == {}


def test_what_a_template_says_in_an_error_is_written_out(real: Any) -> None:
    template = "{{ raise_exception('\x1b]52;c;AAAA\x07\u202e') }}"
    real(f"import yaie_engine\nllm = yaie_engine.LLM('tiny', num_blocks=64, chat_template={template!r})")
    real("try:\n    llm.chat([{'role': 'user', 'content': 'x'}])\nfinally:\n    llm.close()")
    assert "\\x1b]52;c;AAAA\\x07\\u202e" in real.out and not obeyed([real.out, real.err])
