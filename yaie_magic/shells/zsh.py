"""The completion script for zsh."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .words import CommandWords, Flag, Value, global_options

_HEAD = """\
#compdef yaie
# Completion of yaie in zsh:  eval "$(yaie completion zsh)"  after compinit, or save it as _yaie in a folder of $fpath

_yaie_models() {
    local hub=${HF_HUB_CACHE:-${HF_HOME:-${XDG_CACHE_HOME:-$HOME/.cache}/huggingface}/hub} folder
    local -a models=("$@")
    for folder in "$hub"/models--*(N/); do
        folder=${folder##*/models--}
        models+=("${folder//--//}")
    done
    compadd -a models
    _files
}

_yaie() {
    local -a commands"""
_TAIL = """\
    esac
}

if [[ $funcstack[1] == _yaie ]]; then
    _yaie "$@"
else
    compdef _yaie yaie
fi"""


def script(commands: Sequence[CommandWords]) -> str:
    """The text to evaluate, or to save as `_yaie`."""
    return "\n".join(
        [
            _HEAD,
            "    commands=(",
            *(f"        {_quote(f'{command.name}:{_plain(command.text)}')}" for command in commands),
            "    )",
            "    if ((CURRENT == 2)); then",
            "        _describe -t commands command commands",
            f"        compadd -- {' '.join(global_options())}",
            "        return",
            "    fi",
            "    shift words",
            "    ((CURRENT--))",
            "    case $words[1] in",
            *(line for command in commands for line in _case(command)),
            _TAIL,
        ]
    )


def _case(command: CommandWords) -> Iterator[str]:
    specs = [spec for flag in command.flags for spec in _specs(flag)]
    specs.append(_quote(f"*:word:{_action(command.place)}"))
    yield f"        {command.name})"
    yield "            _arguments -S : \\"
    yield " \\\n".join(f"                {spec}" for spec in specs)
    yield "            ;;"


def _specs(flag: Flag) -> Iterator[str]:
    """A spec for each spelling; one that was given is not offered again unless it may be repeated."""
    others = " ".join(flag.spellings)
    lead = "*" if flag.repeated else f"({others})"
    for each in flag.spellings:
        follows = "" if flag.value is None else "=" if each.startswith("--") else "+"
        value = "" if flag.value is None else f":value:{_action(flag.value)}"
        yield _quote(f"{lead}{each}{follows}[{_plain(flag.text)}]{value}")


def _action(value: Value) -> str:
    if value.kind == "words":
        return f"({' '.join(value.words)})"
    if value.kind == "model":
        return f"{{_yaie_models {' '.join(value.words)}}}"
    return "_files" if value.kind == "file" else " "


def _plain(text: str) -> str:
    r"""A description: the characters that end it are written with a backslash."""
    return "".join(f"\\{each}" if each in "[]:\\" else each for each in text)


def _quote(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
