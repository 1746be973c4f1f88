"""The completion script for fish."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .words import CommandWords, Flag, Value, global_options

_HEAD = """\
# Completion of yaie in fish:  yaie completion fish | source

function __yaie_models
    set -l hub "$HF_HUB_CACHE"
    if test -z "$hub"
        set -l home "$HF_HOME"
        if test -z "$home"
            set -l cache "$XDG_CACHE_HOME"
            test -n "$cache"; or set cache ~/.cache
            set home $cache/huggingface
        end
        set hub $home/hub
    end
    for folder in $hub/models--*
        string replace -r '.*/models--' '' -- $folder | string replace -a -- -- /
    end
end

function __yaie_first
    test (count (commandline -opc)) -eq 1
end

function __yaie_in
    set -l words (commandline -opc)
    test (count $words) -ge 2; and test $words[2] = $argv[1]
end

complete -c yaie -f"""


def script(commands: Sequence[CommandWords]) -> str:
    """The text to source."""
    lines = [_HEAD]
    for command in commands:
        lines.append(f"complete -c yaie -n __yaie_first -a {command.name} -d {_quote(command.text)}")
    lines += [f"complete -c yaie -n __yaie_first -l {name.removeprefix('--')}" for name in global_options()]
    for command in commands:
        condition = _quote(f"__yaie_in {command.name}")
        lines += [f"complete -c yaie -n {condition} {rest}" for rest in _entries(command)]
    return "\n".join(lines)


def _entries(command: CommandWords) -> Iterator[str]:
    if command.place.kind != "nothing":
        yield _arguments(command.place)
    for flag in command.flags:
        yield from _flag(flag)


def _flag(flag: Flag) -> Iterator[str]:
    for index, name in enumerate(flag.long):
        short = f"-s {flag.short.removeprefix('-')} " if flag.short and not index else ""
        value = "" if flag.value is None else f" {_value(flag.value)}"
        yield f"{short}-l {name.removeprefix('--')}{value} -d {_quote(flag.text)}"


def _value(value: Value) -> str:
    return "-x" if value.kind == "nothing" else f"-r {_arguments(value)}"


def _arguments(value: Value) -> str:
    words = " ".join(value.words)
    if value.kind == "words":
        return f"-f -a {_quote(words)}"
    return f"-F -a {_quote(f'{words} (__yaie_models)')}" if value.kind == "model" else "-F"


def _quote(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
