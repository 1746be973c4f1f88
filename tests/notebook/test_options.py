"""The option table and its parser: every field is an option, every mistake one clear line."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from yaie_engine import EngineConfig, RequestError, SamplingParams
from yaie_magic.batch import split_json_lines
from yaie_magic.cell_options import cell_parser
from yaie_magic.options import UsageProblem, engine_options, sampling_options
from yaie_magic.parser import OptionParser, split_line
from yaie_magic.subcommands import SUBCOMMANDS, overview

PARSER = cell_parser("generate")


def parse(line: str) -> dict[str, object]:
    return PARSER.parse(split_line(line))


def test_import_is_light() -> None:
    heavy = ("torch", "transformers", "pydantic", "numpy", "IPython", "ipywidgets")
    code = f"import sys, yaie_magic, yaie_magic.options; print([m for m in {heavy!r} if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_every_sampling_field_is_an_option() -> None:
    assert {entry.name for entry in sampling_options()} == set(SamplingParams.model_fields)


def test_every_engine_field_but_the_model_is_an_option() -> None:
    shown = {entry.name for entry in engine_options() if not entry.hidden}
    assert shown == set(EngineConfig.model_fields) - {"model"}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("-m 5 -n 2 -t 0.5", {"max_tokens": 5, "n": 2, "temperature": 0.5}),
        ("--max-tokens=5 -n2", {"max_tokens": 5, "n": 2}),
        ("--ignore-eos", {"ignore_eos": True}),
        ("--no-skip-special-tokens", {"skip_special_tokens": False}),
        ("--stop-token-ids 3,4 --stop-token-ids 5", {"stop_token_ids": [3, 4, 5]}),
        ("--logit-bias 42=-100 --logit-bias 7=1.5,8=2", {"logit_bias": {42: -100.0, 7: 1.5, 8: 2.0}}),
        ("""--logit-bias '{"42": -100}'""", {"logit_bias": {42: -100}}),
        ("--seed none", {"seed": None}),
        ("-o answer -b -i -q", {"output": "answer", "background": True, "interpolate": True, "quiet": True}),
        ("--presence-penalty -1.5", {"presence_penalty": -1.5}),
    ],
)
def test_values(line: str, expected: dict[str, object]) -> None:
    assert parse(line) == expected


@pytest.mark.parametrize(
    ("line", "stops"),
    [
        ('--stop="a b"', ["a b"]),
        (r'--stop "\n\n"', ["\n\n"]),
        (r"--stop \n --stop '\t'", ["\n", "\t"]),
        ("--stop --- --stop '###'", ["---", "###"]),
        ("--stop -- --stop=-- --stop x", ["--", "--", "x"]),
        ("""--stop "it's" """, ["it's"]),
        (r"--stop '\\n'", ["\\n"]),
        ("--stop ;", [";"]),
        ("--stop '#'", ["#"]),
    ],
)
def test_case_03_quotes_and_escapes_in_stop(line: str, stops: list[str]) -> None:
    assert parse(line) == {"stop": stops}


def test_case_03_apostrophe_in_the_system_text() -> None:
    given = cell_parser("chat").parse(split_line("""-s "You are a 'cat', it's true" -m 3"""))
    assert given == {"system": "You are a 'cat', it's true", "max_tokens": 3}


@pytest.mark.parametrize(
    ("line", "part"),
    [
        ("--max-tokns 5", "did you mean '--max-tokens'?"),
        ("--no-ignore-eoss", "did you mean '--no-ignore-eos'?"),
        ("--max-tokens", "expected one argument"),
        ("five", "unexpected word 'five'"),
        ("-s 'it", "close the quote"),
        ("--logit-bias 42", "write ID=VALUE"),
        ("--logit-bias '{42}'", "not valid JSON"),
        ("--format jsn", "did you mean 'json'?"),
        ("--max-tok 5", "did you mean '--max-tokens'?"),
        ("--ignore-eos=1", "--ignore-eos"),
    ],
)
def test_mistakes_are_one_line(line: str, part: str) -> None:
    with pytest.raises(UsageProblem) as caught:
        parse(line)
    assert part in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("line", ["-n abc", "-n -1", "-n 0", "--top-p 1.5", "-t nan", "--logit-bias 4=1000", "-m 1.5"])
def test_values_out_of_range_are_named_with_the_range(line: str) -> None:
    with pytest.raises(RequestError, match=r"allowed|a valid|finite"):
        SamplingParams(**parse(line))


def test_old_names_are_accepted_and_say_the_new_one(caplog: pytest.LogCaptureFixture) -> None:
    given = SUBCOMMANDS["load"].parser().parse(split_line("--max-batch-size 8 --num-gpu-blocks 99"))
    with caplog.at_level("WARNING", logger="yaie"):
        config = EngineConfig(**given)
    assert (config.max_num_seqs, config.num_blocks) == (8, 99)
    assert "max_num_seqs" in caplog.text


def test_help_names_every_option_and_subcommand() -> None:
    text = PARSER.format_help()
    assert all(flag in text for entry in PARSER.options for flag in entry.flags)
    assert all(name in overview() for name in SUBCOMMANDS)
    assert all(entry.parser().format_help() for entry in SUBCOMMANDS.values())


def test_only_built_subcommands_exist() -> None:
    built = (
        "load unload restart attach sleep wake status cache models config dashboard replay tree blocks timeline "
        "explain inspect insights metrics cancel history reset anomaly trace kernels serve connect doctor help"
    )
    assert " ".join(SUBCOMMANDS) == built


def test_a_percent_sign_in_a_help_text_is_harmless() -> None:
    from yaie_magic.options import option

    assert "100%" in OptionParser("x", (option("a", "100% of it"),)).format_help()


@pytest.mark.parametrize("line", ["-ht,", "--n 2 -hx", "-h=1"])
def test_help_with_letters_behind_it_is_unknown_and_ends_nothing(line: str) -> None:
    """argparse would print the help text and end the process."""
    with pytest.raises(UsageProblem, match="-h"):
        parse(line)
    assert parse("--stop=-hello") == {"stop": ["-hello"]}


@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_json_without_end_is_one_line(opening: str) -> None:
    with pytest.raises(UsageProblem):
        split_json_lines(opening * 100_000)
    with pytest.raises(UsageProblem) as caught:
        PARSER.parse(["--structured", opening * 5000])
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize(
    ("line", "part"),
    [
        ("x" * 600_000, "at most 100,000 are allowed"),
        ("-t 1 " * 3_000, "at most 2,000 are allowed"),
        ('\\"' * 40_000, "unexpected word"),
        ('"' + '\\"' * 40_000, "close the quote"),
        ("--" + "max-tokens" * 9_000, "unknown option"),
    ],
    ids=["letters", "words", "escaped quotes", "an open quote", "an unknown option"],
)
def test_a_line_without_end_is_one_short_line_at_once(line: str, part: str) -> None:
    """Bounds: some of these took ten seconds and more."""
    begun = time.process_time()
    with pytest.raises(UsageProblem) as caught:
        parse(line)
    assert part in str(caught.value) and len(str(caught.value)) < 600
    assert time.process_time() - begun < 5


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (r"\"a\nb", ['"a\\nb']),
        (r"it\'s 'a b\n' c\n", ["it's", "a b\\n", "c\\n"]),
        (r'"a\"b" \\ \t', ['a"b', "\\", "\\t"]),
    ],
)
def test_an_escaped_quote_opens_nothing(line: str, words: list[str]) -> None:
    assert split_line(line) == words
