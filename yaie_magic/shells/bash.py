"""The completion script for bash, 3.2 and later."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from .words import CommandWords, Value, global_options

_HEAD = """\
# Completion of yaie in bash:  eval "$(yaie completion bash)"

_yaie_models() {
    local hub=${HF_HUB_CACHE:-${HF_HOME:-${XDG_CACHE_HOME:-$HOME/.cache}/huggingface}/hub} folder
    for folder in "$hub"/models--*; do
        [[ -d $folder ]] || continue
        folder=${folder##*/models--}
        printf '%s\\n' "${folder//--//}"
    done
}

_yaie_words() {
    local IFS=$' \\t\\n'
    COMPREPLY=($(compgen -W "$1" -- "$word"))
}

_yaie_files() {
    local IFS=$'\\n'
    compopt -o filenames 2>/dev/null
    COMPREPLY+=($(compgen -f -- "$word"))
}

_yaie() {
    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]}
    COMPREPLY=()
    # bash splits --option=value into three words
    if [[ $word == "=" ]]; then
        word=""
    elif [[ $before == "=" ]]; then
        before=${COMP_WORDS[COMP_CWORD - 2]}
    fi"""
_TAIL = """\
    esac
}

complete -F _yaie yaie"""


def script(commands: Sequence[CommandWords]) -> str:
    """The text to evaluate."""
    names = " ".join([*(command.name for command in commands), *global_options()])
    return "\n".join(
        [
            _HEAD,
            "    if [[ $COMP_CWORD -eq 1 ]]; then",
            f"        _yaie_words {shlex.quote(names)}",
            "        return",
            "    fi",
            "    case ${COMP_WORDS[1]} in",
            *(line for command in commands for line in _case(command)),
            _TAIL,
        ]
    )


def _case(command: CommandWords) -> Iterator[str]:
    yield f"        {command.name})"
    groups: dict[Value, list[str]] = {}
    for flag in command.flags:
        if flag.value is not None:
            taking = [each for each in flag.spellings if not each.startswith("--no-")]
            groups.setdefault(flag.value, []).extend(taking)
    if groups:
        yield "            case $before in"
        for value, flags in groups.items():
            yield f"                {' | '.join(flags)})"
            yield from (f"                    {line}" for line in (*_complete(value), "return"))
            yield "                    ;;"
        yield "            esac"
    flags_text = shlex.quote(" ".join(each for flag in command.flags for each in flag.long))
    yield "            if [[ $word == -* ]]; then"
    yield f"                _yaie_words {flags_text}"
    yield "                return"
    yield "            fi"
    yield from (f"            {line}" for line in _complete(command.place))
    yield "            ;;"


def _complete(value: Value) -> Sequence[str]:
    if value.kind == "words":
        return [f"_yaie_words {shlex.quote(' '.join(value.words))}"]
    if value.kind == "model":
        return [f'_yaie_words "{" ".join(value.words)} $(_yaie_models)"', "_yaie_files"]
    return ["_yaie_files"] if value.kind == "file" else []
