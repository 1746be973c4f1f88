"""Where settings come from: a file, the environment, the command line, in rising order."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from yaie_engine.errors import ConfigError
from yaie_magic.commands import serve
from yaie_magic.settings import engine_settings, read_environment, read_file, server_settings, without_secrets


@pytest.fixture(autouse=True)
def clean_slate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables of the person who runs the tests do not count."""
    for name in [name for name in os.environ if name.startswith("YAIE_")]:
        monkeypatch.delenv(name)


def write(folder: Path, text: str) -> str:
    path = folder / "engine.yaml"
    path.write_text(text)
    return str(path)


def test_flat_file(tmp_path: Path) -> None:
    file = write(tmp_path, "model: tiny\nblock_size: 8\nmax_num_seqs: 4\n")
    assert read_file(file) == {"model": "tiny", "block_size": 8, "max_num_seqs": 4}


def test_nested_file(tmp_path: Path) -> None:
    text = "model:\n  name: tiny\n  dtype: float32\nscheduler:\n  max_num_seqs: 4\nmemory:\n  num_blocks: 32\n"
    config = engine_settings(write(tmp_path, text), {})
    assert (config.model, config.dtype, config.max_num_seqs, config.num_blocks) == ("tiny", "float32", 4, 32)


def test_empty_file_sets_nothing(tmp_path: Path) -> None:
    assert read_file(write(tmp_path, "# nothing yet\n")) == {}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("- a\n- b\n", "holds a list"),
        ("model: [tiny\n", "is not YAML"),
        ("blok_size: 8\n", "did you mean 'block_size'"),
        ("memory:\n  num_blocks: 4\nnum_blocks: 8\n", "given twice"),
        ("sampling:\n  max_tokns: 4\n", "did you mean 'max_tokens'"),
        ("sampling:\n  max_tokens: 4\nsampling_defaults: {}\n", "given twice"),
        ("block_size: 0\n", "block_size=0"),
        ("max_num_seqs: many\n", "max_num_seqs='many'"),
        ("memory: 4\n", "names with values are needed below memory:"),
        ("seed: 2026-13-45\n", "is not YAML"),
    ],
)
def test_bad_file_is_one_clear_line(text: str, reason: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        engine_settings(write(tmp_path, text), {})
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ('"a-key-of-our-own', "is not YAML: line "),
        ("[a-key-of-our-own", "is not YAML: line "),
        ("a-key-of-our-own: x", "is not YAML: line 2, column 28: mapping values are not allowed here"),
        ("*a-key-of-our-own", "is not YAML: line 2, column 12: found undefined alias ..."),
        ("!a-key-of-our-own x", "is not YAML: line 2, column 12: "),
        ('"a key-of-our-own"', "api_key: a key is made of visible ASCII characters"),
        ("[a-key-of-our-own]", "api_key: Input should be a valid string"),
    ],
)
def test_a_key_that_is_written_wrong_is_not_shown(value: str, reason: str, tmp_path: Path) -> None:
    file = write(tmp_path, f"server:\n  api_key: {value}\n  port: 1\n")
    with pytest.raises(ConfigError) as caught:
        server_settings(file, {})
    assert reason in str(caught.value)
    assert "of-our-own" not in str(caught.value)


def test_a_section_without_names_sets_nothing(tmp_path: Path) -> None:
    assert read_file(write(tmp_path, "model:\nmemory:\n  # num_blocks: 4\nserver:\n")) == {}


def test_named_file_that_is_missing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        engine_settings(str(tmp_path / "absent.yaml"), {})


def test_environment_is_over_the_file_and_below_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write(tmp_path, "block_size: 4\nmax_num_seqs: 4\nnum_blocks: 4\n")
    monkeypatch.setenv("YAIE_MAX_NUM_SEQS", "8")
    monkeypatch.setenv("YAIE_NUM_BLOCKS", "8")
    config = engine_settings(file, {"num_blocks": 16})
    assert (config.block_size, config.max_num_seqs, config.num_blocks) == (4, 8, 16)


def test_environment_takes_old_names_and_ignores_empty_values() -> None:
    values = read_environment({"YAIE_MAX_BLOCKS": "12", "YAIE_DTYPE": "", "OTHER": "1"})
    assert values == {"max_blocks": "12"}


@pytest.mark.parametrize("name", ["YAIE_NOTEBOOK", "YAIE_DOT", "YAIE_TRACE"])
def test_variables_of_other_parts_are_left_alone(name: str, caplog: pytest.LogCaptureFixture) -> None:
    assert read_environment({name: "static"}) == {}
    assert caplog.text == ""


def test_unknown_variable_is_warned_about_with_the_nearest_name(caplog: pytest.LogCaptureFixture) -> None:
    assert read_environment({"YAIE_BLOCK_SIZ": "8"}) == {}
    assert "YAIE_BLOCK_SIZ is unknown and has no effect; did you mean YAIE_BLOCK_SIZE?" in caplog.text


def test_mapping_in_a_variable_is_json() -> None:
    assert read_environment({"YAIE_SAMPLING_DEFAULTS": '{"max_tokens": 5}'}) == {"sampling_defaults": {"max_tokens": 5}}
    with pytest.raises(ConfigError, match="YAIE_SAMPLING_DEFAULTS: not JSON"):
        read_environment({"YAIE_SAMPLING_DEFAULTS": "{"})


def test_secrets_are_not_logged() -> None:
    assert without_secrets({"api_key": "hunter2", "port": 8000}) == {"api_key": "***", "port": 8000}


def test_each_source_is_over_the_one_before_it_whatever_names_they_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write(tmp_path, "max_batch_size: 3\nnum_blocks: 50\nmax_seq_len: 64\ndefault_max_tokens: 5\n")
    monkeypatch.setenv("YAIE_MAX_BLOCKS", "40")
    monkeypatch.setenv("YAIE_DEFAULT_TOP_P", "0.5")
    config = engine_settings(file, {"max_num_seqs": 5})
    assert (config.max_num_seqs, config.num_blocks, config.max_model_len) == (5, 40, 64)
    assert (config.default_params.max_tokens, config.default_params.top_p) == (5, 0.5)
    assert engine_settings(file, {"max_blocks": 30}).num_blocks == 30


def test_old_variables_that_ask_for_nothing_are_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("YAIE_TENSOR_PARALLEL_SIZE", "1")
    monkeypatch.setenv("YAIE_SWAP_SPACE", "0")
    assert engine_settings(None, {}) == engine_settings(None, {"num_cpu_blocks": 0})


def test_sampling_parameters_flat_and_grouped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("YAIE_TEMPERATURE", "0.5")
    monkeypatch.setenv("YAIE_STOP", '["a", "b"]')
    for text in ("max_tokens: 7\ntemperature: 0\n", "sampling:\n  max_tokens: 7\n  temperature: 0\n"):
        params = engine_settings(write(tmp_path, text), {}).default_params
        assert (params.max_tokens, params.temperature, params.stop) == (7, 0.5, ["a", "b"])


def test_a_seed_alone_is_the_engines_and_a_grouped_one_the_requests(tmp_path: Path) -> None:
    config = engine_settings(write(tmp_path, "seed: 3\nsampling:\n  seed: 4\n"), {})
    assert (config.seed, config.default_params.seed) == (3, 4)


def test_the_settings_in_force_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", logger="yaie"):
        engine_settings(None, {"num_blocks": 9})
    assert caplog.text.count("configuration:") == 1 and '"num_blocks": 9' in caplog.text


@pytest.mark.parametrize(
    "words", [["--allowed-hosts", "a.lan, b.lan"], ["--allowed-hosts", "a.lan", "--allowed-hosts=b.lan"]]
)
def test_hosts_of_an_option_are_separated_by_commas_as_in_a_file(words: list[str], tmp_path: Path) -> None:
    given = serve.parser().parse(words)
    assert server_settings(None, given).allowed_hosts == ["a.lan", "b.lan"]
    assert server_settings(write(tmp_path, "allowed_hosts: a.lan, b.lan\n"), {}).allowed_hosts == ["a.lan", "b.lan"]
    with pytest.raises(ConfigError, match="allowed_hosts"):
        server_settings(write(tmp_path, "allowed_hosts: [1]\n"), {})
