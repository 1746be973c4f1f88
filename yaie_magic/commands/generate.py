"""`yaie generate`: answer prompts. One prompt streams; several run together and come out in their order."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from yaie_magic import logs
from yaie_magic.cli import DONE, FAILED, complain
from yaie_magic.commands import form
from yaie_magic.commands.source import ELSEWHERE, open_engine
from yaie_magic.options import UsageProblem, option
from yaie_magic.parser import OptionParser
from yaie_magic.terminal import printable

if TYPE_CHECKING:
    from yaie_engine import Generation, RequestOutput, SamplingParams
    from yaie_engine.serving import Engine

OWN = (
    option("model", form.MODEL, metavar="MODEL"),
    form.CONFIG,
    option("chat", "each prompt is what a user says to a chat model", kind="flag"),
    option("system", "what the chat model is told first (with --chat)", "-s", metavar="TEXT"),
    option("json", "one JSON object a line instead of text: the fields of RequestOutput", kind="flag"),
)
PLACES = (("prompts", "*", "the prompts; `-`, or none at all, reads one from standard input"),)
SEPARATOR = "---"
ABOUT = (
    "Answer prompts on standard output. One prompt streams; several run together and come out in their order, with a "
    "line of --- between two."
)
EXAMPLES = (
    ("go on with a text, greedily", 'yaie generate "Once upon a time" --temperature 0 --max-tokens 40'),
    ("ask a chat model what stands in a file", 'yaie generate --chat --system "Be brief." < question.txt'),
    ("several prompts in one batch, for a program", 'yaie generate "One plus one is" "Two plus two is" --json'),
    ("ask an engine that runs elsewhere", 'yaie generate --url http://127.0.0.1:8000 "Once upon a time"'),
)


def parser() -> OptionParser:
    """Our options, then those of a request, then those of the engine (a seed belongs to the request here)."""
    sampling = form.sampling_group()
    return form.form(
        "generate",
        ABOUT,
        OWN,
        PLACES,
        form.with_logging(sampling, ELSEWHERE, *form.engine_groups(without=(*OWN, *sampling.options))),
        EXAMPLES,
        (form.SETTINGS, form.KEY, form.CACHES),
    )


def run(arguments: Sequence[str]) -> int:
    """Parse, load, answer."""
    given = parser().parse(arguments)
    logs.set_up(given)
    prompts = read_prompts(given.get("prompts", []))
    if "system" in given and not given.get("chat"):
        raise UsageProblem("--system is for --chat")
    with open_engine(given) as (llm, params):
        if len(prompts) == 1 and params.n == 1 and not given.get("json"):
            return print_stream(submit(llm, prompts[0], params, given))
        outputs = answers(llm, prompts, params, given)
        return print_json(outputs) if given.get("json") else print_all(outputs)


def read_prompts(words: Sequence[str]) -> list[str]:
    """The prompts on the command line, or the one on standard input without the newline that ends it."""
    if [*words] in ([], ["-"]):
        if sys.stdin.isatty() and not words:
            raise UsageProblem('no prompt: yaie generate "Once upon a time", or pipe one in')
        words = [sys.stdin.read().removesuffix("\n")]
    for number, prompt in enumerate(words, 1):
        if not prompt:
            raise UsageProblem("the prompt is empty" if len(words) == 1 else f"prompt {number} is empty")
    return list(words)


def submit(llm: Engine, prompt: str, params: SamplingParams, given: Mapping[str, Any]) -> Generation:
    """Send one prompt, as it is or as the beginning of a conversation."""
    return llm.submit_chat(as_chat(prompt, given), params) if given.get("chat") else llm.submit(prompt, params)


def answers(
    llm: Engine, prompts: Sequence[str], params: SamplingParams, given: Mapping[str, Any]
) -> list[RequestOutput]:
    """All answers, in the order of their prompts."""
    from yaie_engine.serving import NotOffered

    inputs: list[str | list[int]] = list(prompts)
    if given.get("chat"):
        try:
            inputs = [llm.chat_ids(as_chat(prompt, given)) for prompt in prompts]
        except NotOffered:  # a server that takes messages only
            handles = [llm.submit_chat(as_chat(prompt, given), params) for prompt in prompts]
            return [handle.result() for handle in handles]
    return llm.generate(inputs, params, use_tqdm=sys.stderr.isatty() and not given.get("json"))


def as_chat(prompt: str, given: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The messages of a conversation that begins with this prompt."""
    first = [{"role": "system", "content": given["system"]}] if given.get("system") else []
    return [*first, {"role": "user", "content": prompt}]


def print_stream(handle: Generation) -> int:
    """Write the text while it is generated. An interrupt cancels the request and keeps what was written."""
    try:
        for delta in handle:
            sys.stdout.write(printable(str(delta)))
            sys.stdout.flush()
    finally:
        handle.cancel()
        print(flush=True)
    return report_failures([handle.result()])


def print_all(outputs: Sequence[RequestOutput]) -> int:
    """Write finished texts in prompt order, a line of dashes between two."""
    texts = [printable(choice.text) for output in outputs for choice in output.outputs]
    print(f"\n{SEPARATOR}\n".join(texts), flush=True)
    return report_failures(outputs)


def print_json(outputs: Sequence[RequestOutput]) -> int:
    """One object a line, in prompt order."""
    for output in outputs:
        print(json.dumps(output.to_dict()), flush=True)
    return report_failures(outputs)


def report_failures(outputs: Sequence[RequestOutput]) -> int:
    """One line on stderr for each request that failed while it ran."""
    failed = [output for output in outputs if output.error is not None]
    for output in failed:
        complain(f"{output.request_id}: {output.error}", FAILED)
    return FAILED if failed else DONE
