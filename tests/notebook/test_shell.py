"""The magics in a plain IPython shell, where text goes to standard output."""

from __future__ import annotations

import os
import pickle
import signal
import threading
import time

import pytest
from shell_run import Run


def test_text_is_printed_once_and_the_result_is_one_line(run: Run) -> None:
    run("%%generate -m 3\nhello")
    assert run.out.count("w0 w1 w2") == 1
    assert run.out.endswith("<Completion: 3 tokens · length · 0 of 5 prompt tokens cached>\n")


def test_the_result_has_three_names(run: Run) -> None:
    run("%%generate -m 2 -o answer\nhello")
    assert run["answer"] is run["_yaie"] is run.result
    assert run.shell.user_ns["Out"][run.shell.execution_count - 1] is run.result
    assert str(run.result) == run.result.text == "w0 w1 "


def test_a_completion_says_everything(run: Run) -> None:
    done = run("%%generate -m 2 -t 0\nhello").result
    assert (done.prompt, done.tokens, done.finish_reason, done.done) == ("hello", (100, 101), "length", True)
    assert (done.usage.prompt, done.usage["completion"], dict(done.usage)["cached"]) == (5, 2, 0)
    assert done.timings.total == 0.5
    assert done.params.temperature == 0
    assert done.logprobs is None and done.error is None and done.request_id == "req-0"
    assert done.wait() is done


def test_a_pickled_completion_keeps_its_figures(run: Run) -> None:
    done = run("%%generate -m 2 -q\nhello").result
    copy = pickle.loads(pickle.dumps(done))
    assert (copy.text, copy.tokens, copy.usage, repr(copy)) == (done.text, done.tokens, done.usage, repr(done))


def test_several_choices_are_a_list(run: Run) -> None:
    run("%%generate -m 2 -n 3 -o r\nhello")
    assert [one.index for one in run["r"]] == [0, 1, 2]
    assert isinstance(run["r"], list)
    assert run.out.count("w0 w1") == 3
    parts = [run.out.index(part) for part in ("[1 of 3]\nw0", "[2 of 3]\nw0", "[3 of 3]\nw0")]
    assert parts == sorted(parts) and run.out.count(" of 3]") == 3
    assert [one.text for one in pickle.loads(pickle.dumps(run["r"]))] == ["w0 w1 "] * 3


def test_quiet_shows_nothing_and_keeps_the_result(run: Run) -> None:
    run("%%generate -m 2 -q\nhello")
    assert "w0" not in run.out and "Completion" not in run.out
    assert run.shell.user_ns["Out"][run.shell.execution_count - 1].text == "w0 w1 "
    assert run.out == "" and run.result is run["_"] is run["_yaie"]
    run("_yaie")
    assert "Completion" in run.out
    run("%%generate -m 2 -q -b\nhello")
    assert run.out == "" and run.result.wait(5).text == "w0 w1 "


def test_a_quiet_line_silences_nothing_else_in_its_cell(run: Run) -> None:
    run("prompts = ['a', 'b']\nr = %batch --from prompts -m 1 -q\n41 + 1")
    assert run.result == 42 and "42" in run.out and "w0" not in run.out
    assert [one.text for one in run["r"]] == ["w0 ", "w0 "]
    assert run("6 * 7").out.strip().endswith("42")


def test_interpolation_replaces_names_and_nothing_else(run: Run) -> None:
    run("name = 'Ada'\n")
    run("%%generate -m 1 -i\n{name} {{name}} {'a': 1} {x for x in y} {} ${name}")
    assert run.result.prompt == "Ada {{name}} {'a': 1} {x for x in y} {} $Ada"


def test_an_unknown_name_is_named(run: Run) -> None:
    run("%%generate -i\n{nobody} and {nothing}")
    assert run.err.count("\n") == 1
    assert "{nobody}, {nothing}" in run.err


def test_names_in_the_line_are_replaced_or_named(run: Run) -> None:
    run("count = 4")
    assert run("%%generate -m {count}\nhi").result.usage.completion == 4
    assert "{cout} is not defined" in run("%%generate -m {cout}\nhi").err
    assert run("%%generate -m 1 --stop {{count}}\nhi").result.params.stop == ["{count}"]


def test_a_batch_from_a_list_needs_no_body(run: Run) -> None:
    run("questions = ['p', 'q']")
    assert [c.text for c in run("%%batch --from questions -m 1").result] == ["w0 ", "w0 "]
    assert run.err == ""


def test_the_transformer_of_empty_cells_is_there_once_and_goes_with_the_extension(run: Run) -> None:
    from yaie_magic.empty_cells import with_body

    transforms = run.shell.input_transformer_manager.cleanup_transforms
    run("%load_ext yaie_magic")
    run("%reload_ext yaie_magic")
    assert transforms.count(with_body) == 1
    run("%unload_ext yaie_magic")
    assert with_body not in transforms
    run("%load_ext yaie_magic")


@pytest.mark.parametrize("lines", [["x = 1\n"], ["%%timeit\n"], ["%%generate_all"], ["# %%chat\n"], [], ["\n"]])
def test_other_cells_are_left_alone(lines: list[str]) -> None:
    from yaie_magic.empty_cells import with_body

    assert with_body(list(lines)) == lines
    assert with_body(["%%generate\n", *lines, "y\n"])[1:] == [*lines, "y\n"]


def test_the_results_of_a_list_are_named_when_one_is_needed(run: Run) -> None:
    run("%%batch -m 1 -o rs\na\n---\nb")
    ids = [one.request_id for one in run["rs"]]
    assert len(set(ids)) == 2
    for command in ("explain rs", "tree --request rs", "blocks --request rs"):
        run(f"%yaie {command}")
        assert all(each in run.err for each in ids) and run.err.count("\n") == 1, command


def test_an_interrupted_cell_keeps_its_result_under_its_own_number(run: Run) -> None:
    from yaie_magic.session import session

    def press() -> None:
        while not session.get().llm.running():
            time.sleep(0.01)
        time.sleep(0.1)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=press).start()
    run("%%generate -m 100000 -o r\nhi")
    assert type(run.error).__name__ == "Interrupted"
    assert run.shell.user_ns["Out"][run.shell.execution_count - 1] is run["r"]


def test_config_sets_defaults_and_the_line_wins(run: Run) -> None:
    run("%config YaieMagics.max_tokens = 3")
    run("%config YaieMagics.temperature = 0.0")
    run("%config YaieMagics.stop = ['x']")
    run("%config YaieMagics.format = 'json'")
    assert run("%%generate\nhi").result.usage.completion == 3
    assert (run.result.params.temperature, run.result.params.stop, run.result.format) == (0, ["x"], "json")
    assert run("%%generate -m 5\nhi").result.usage.completion == 5


def test_a_command_after_the_prompt_is_part_of_it(run: Run) -> None:
    assert run("%%generate -m 1\nx = 1;\n%yaie status\n!ls\n\n").result.prompt == "x = 1;\n%yaie status\n!ls\n"


def test_without_a_model_the_bundled_one_is_loaded_and_said_so(run: Run) -> None:
    run("%yaie unload")
    run("%%generate -m 1\nhi")
    assert "loading the bundled model tiny" in run.out and "w0" in run.out


def test_loading_again_changes_nothing(run: Run) -> None:
    from yaie_magic.session import session

    before = session.get().llm
    assert "nothing to do" in run("%yaie load tiny").out
    assert session.get().llm is before
    run("%yaie load tiny --block-size 8")
    assert session.get().llm is not before and before.state == "closed"


def test_load_takes_settings_from_the_environment_below_its_options(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from yaie_magic.session import session

    monkeypatch.setenv("YAIE_BLOCK_SIZE", "8")
    monkeypatch.setenv("YAIE_MAX_BLOCKS", "40")
    run("%yaie load tiny --num-blocks 30")
    assert (session.get().config.block_size, session.get().config.num_blocks) == (8, 30)
    run("%yaie unload")
    run("%%generate -m 1\nhi")
    assert session.get().config.num_blocks == 40


def test_loading_over_running_work_is_refused_unless_forced(run: Run) -> None:
    run("%%generate -b -m 100000 -o r\nhi")
    run("%yaie load tiny --block-size 8")
    assert "1 request is running" in run.err and "--force" in run.err
    assert not run["r"].done
    assert "1 running request cancelled" in run("%yaie load tiny --block-size 8 --force").out
    assert run["r"].wait(5).finish_reason == "cancelled"


def test_several_engines_have_names(run: Run) -> None:
    run("%yaie load tiny --as second")
    assert "engine second" in run("%yaie status").out
    run("%%generate -m 1 --engine default\nhi")
    assert "did you mean 'second'" in run("%%generate --engine secnd\nhi").err
    run("%yaie unload second")
    assert "step 1" in run("%yaie status").out
    run("%yaie load tiny --as second")
    assert run("%yaie unload --all").out == "tiny (default) unloaded.\ntiny (second) unloaded.\n"


def test_status_keeps_its_columns_and_counts_in_words(run: Run) -> None:
    from dataclasses import replace

    from yaie_magic.session import session
    from yaie_magic.subcommands.status import report

    engine = session.get()
    snapshot = engine.llm.snapshot()
    reason = "why " * 60 + "; reference attention: " + "because " * 40
    model, counters = replace(snapshot.model, reason=reason), replace(snapshot.counters, copies=1, preemptions=2)
    lines = report(engine, replace(snapshot, model=model, counters=counters)).splitlines()
    assert lines[-1].endswith("2 preemptions, 0 evictions, 1 copy")
    assert sum(line.count("why") for line in lines) == 60 and sum(line.count("because") for line in lines) == 40
    for line in lines[1:]:
        assert line[12:13].strip() and len(line) <= 110 and (line[2:11].strip() or line.startswith(" " * 12))


def test_status_as_json_is_a_dict_that_shows_as_json(run: Run) -> None:
    import json

    run("s = %yaie status --json")
    assert run["s"]["state"] == "ready"
    assert json.loads(run("%yaie status --json").out.partition("\n")[2])["blocks"]["total"] == 64


def test_chat_goes_on_with_the_very_ids(run: Run) -> None:
    first = run("%%chat -m 2 -s brief\nhello").result
    second = run("%%chat -m 2\nagain").result
    whole = [*first.prompt, *first.tokens]
    assert second.prompt[: len(whole)] == whole
    assert second.prompt[len(whole) :] == [2, 3, 1, 11, *b"again", 2, 3, 1, 12]


def test_chat_sessions_are_apart_and_can_start_anew(run: Run) -> None:
    run("%%chat -m 1 --session a\nx")
    run("%%chat -m 1 --session b\nx")
    assert len(run.result.prompt) == 7
    run("%%chat -m 1 --session a -s stern\nx")
    assert "--new starts it again" in run.err
    assert run("%%chat -m 1 --session a --new -s stern\nx").result.prompt[1] == 10
    assert "1 turn forgotten" in run("%yaie reset a").out
    assert run("%yaie reset aa").err == "UsageError: %yaie: reset: no chat session is called 'aa'; did you mean 'a'?\n"
    assert "n=2" in run("%%chat -n 2\nx").err


def test_restart_keeps_the_chats(run: Run) -> None:
    first = run("%%chat -m 1\nhello").result
    run("%yaie restart")
    assert run("%%chat -m 1\nagain").result.prompt[: len(first.prompt)] == list(first.prompt)


def test_batch_splits_lines_lists_and_json(run: Run) -> None:
    assert [c.prompt for c in run("%%batch -m 1\na\n---\nb\nc\n").result] == ["a", "b\nc"]
    assert [c.prompt for c in run("%%batch -m 1 --sep '==='\na\n---\n===\nb").result] == ["a\n---", "b"]
    run('%%batch --jsonl -m 2\n"a"\n\n{"prompt": [1, 2], "max_tokens": 3}\n')
    assert [(c.prompt, c.usage.completion) for c in run.result] == [("a", 2), ([1, 2], 3)]
    run("questions = ['p', {'prompt': 'q', 'max_tokens': 1}]")
    assert [c.usage.completion for c in run("%batch --from questions -m 2").result] == [2, 1]
    assert run.out.count("w0 ") == 2 and "[2 of 2]" in run.out


def test_a_batch_larger_than_the_queue_is_sent_as_room_comes(run: Run) -> None:
    run("%yaie load tiny --max-waiting 2")
    run("prompts = ['p'] * 9")
    assert [c.text for c in run("%batch --from prompts -m 2").result] == ["w0 w1 "] * 9
    run("%batch --from prompts -m 2 -b")
    assert "queue is full" in run.out and type(run.error).__name__ == "QueueFullError"
    assert len(run["_yaie"]) == 2


@pytest.mark.parametrize(
    ("code", "part"),
    [
        ("%%batch\na\n---\n\n---\nb", "prompt 2 is empty"),
        ("%%batch --jsonl\n{\n", "line 1 is not JSON"),
        ('%%batch --jsonl\n{"promt": 1}', 'line 1 has no "prompt"'),
        ('%%batch --jsonl\n{"prompt": "a", "max_tokns": 1}', "did you mean 'max_tokens'"),
        ("%%batch --jsonl\n3", "a prompt is a text or a list of token ids"),
        ("%%batch --from nothing\n\n", "not defined"),
        ("%batch", "the cell body is empty"),
        ("%%batch --from x --jsonl\n\n", "choose one"),
        ("%%batch -m 1\nok\n---\n" + "long" * 400, "prompt 2: prompt of more than"),
        ("%%generate -o 1x\nhi", "not a Python name"),
        ("%%generate\n \n", "the cell body is empty"),
        ("%%generate -n abc\nhi", "n='abc'"),
        ("%%generate -n -1\nhi", "n=-1"),
        ("%%generate --max-tokns 1\nhi", "did you mean '--max-tokens'"),
        ("%yaie", "%yaie help"),
        ("%yaie tre", "did you mean 'tree'"),
        ("%yaie load --dtype flaot32", "did you mean 'float32'"),
        ("%yaie load --num-blocks 0", "num_blocks=0"),
        ("%yaie load a b", "unexpected word 'b'"),
        ("%yaie unload nobody", "no engine is called 'nobody'"),
        ("%yaie history zero", "not a number"),
        ("%yaie tree --format pgn", "did you mean 'png'"),
        ("%yaie explain block x", "block 'x' is not a number"),
        ("%yaie explain 1 2 3", "say what"),
        ("%yaie explain block", "block needs a number: %yaie explain block N, N from 0 to 63"),
        ("%yaie explain node", "node needs a number"),
        ("%%generate", "the cell body is empty"),
        ("%%chat -m 1", "the cell body is empty"),
        ("%%batch", "the cell body is empty"),
        ("%%generate --max-tokns 1", "did you mean '--max-tokens'"),
    ],
)
def test_case_04_bad_input_is_one_line_on_stderr(run: Run, code: str, part: str) -> None:
    run(code)
    assert part in run.err
    assert run.err.startswith("UsageError: ") and run.err.strip().count("\n") == 0
    assert "Traceback" not in run.out
    assert run("%%generate -m 1\nhi").result.text == "w0 "


def test_a_background_cell_prints_nothing_and_gives_a_handle(run: Run) -> None:
    run("%%generate -b -m 3 -o r\nhi")
    assert "w0" not in run.out
    assert run["r"].wait(5).text == "w0 w1 w2 "


def test_waiting_is_bounded_and_cancels_nothing(run: Run) -> None:
    run("%%generate -b -m 100000 -o r\nhi")
    with pytest.raises(TimeoutError):
        run["r"].wait(0.05)
    assert not run["r"].done and run["r"].finish_reason is None and repr(run["r"]) == "<Completion: running>"
    assert "1 request cancelled" in run("%yaie cancel r").out
    assert run["r"].wait(5).finish_reason == "cancelled"


def test_a_background_batch_is_cancelled_by_its_name(run: Run) -> None:
    run("%%batch -b -m 100000 -o rs\na\n---\nb")
    assert "2 requests cancelled" in run("%yaie cancel rs").out
    assert [one.finish_reason for one in run["rs"].wait(5)] == ["cancelled"] * 2
    assert "rs is not running" in run("%yaie cancel rs").out
    assert "req-99 is not running" in run("%yaie cancel req-99").out
    run("number = 3")
    assert "number is a int, not the result of a cell" in run("%yaie cancel number").err


def test_help_is_the_same_text_everywhere(run: Run) -> None:
    from yaie_magic.cell_options import cell_parser
    from yaie_magic.subcommands import overview

    for cell in ("generate", "chat", "batch"):
        for code in (f"%%{cell} --help\nx", f"%%{cell} --help", f"\n%%{cell} -h\n", f"%%{cell} -m 3 --help\n\n"):
            assert run(code).out.strip() == cell_parser(cell).format_help().strip()
    assert run.shell.object_inspect_text("%%generate").count("--max-tokens") >= 1
    assert run("%yaie help").out.strip() == run("%yaie --help").out.strip() == overview()
    assert overview() in run.shell.object_inspect_text("%yaie")
    assert "--dtype" in run("%yaie help load").out


def test_case_16_reload_keeps_the_engine_and_unload_closes_it(run: Run) -> None:
    from yaie_magic.session import session

    engine = session.get().llm
    run("%%generate -m 2 -o r\nhi")
    run("%load_ext yaie_magic")
    run("%reload_ext yaie_magic")
    assert session.get().llm is engine and engine.state == "ready"
    assert run("%%generate\nhi").result.usage.completion == 16  # options do not leak
    names = [type(each).__name__ for each in run.shell.configurables]
    assert names.count("YaieMagics") == 1
    run("%unload_ext yaie_magic")
    assert engine.state == "closed" and not session.engines
    assert "YaieMagics" not in [type(each).__name__ for each in run.shell.configurables]
    assert "not found" in run("%yaie status").err
    run("%load_ext yaie_magic")
