"""The front of the engine: load a model, submit prompts, read results and snapshots."""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import nullcontext
from typing import Any

from .anomaly import AnomalyWatch
from .chat import render_chat
from .config import EngineConfig
from .device_errors import lost
from .engine_setup import NOT_GIVEN, merge_config, start_engine
from .errors import EngineDeadError, QueueFullError, RequestError, StoreError
from .generation import Generation
from .host_cache import HostCounts
from .increment import Increment
from .intake import Intake
from .kernel_gate import GATE
from .loader import load_model
from .observation import Observer
from .openmp import release_workers
from .outputs import RequestOutput
from .params import SamplingParams
from .progress import Watch
from .prompts import Prompt, check_ids, encode_prompt, split_params, split_prompts
from .record import RequestRecord
from .request import Request
from .run_all import run_all
from .sleep import SleepReport, WakeReport, check_level, fall_asleep, wake_up
from .snapshot import EngineSnapshot, EngineState
from .states.kept import KeptState
from .store.opening import make_prefixes, open_store, opened_folder
from .store.prefix_store import Entry
from .tape import Tape
from .tokenizer import Tokenizer
from .trace import Tracer, check_environment, tracer_from_environment
from .view import take_increment, take_snapshot, take_tape

Progress = Callable[[str, float | None], None]
Messages = list[dict[str, Any]]
_OPEN: weakref.WeakSet[LLM] = weakref.WeakSet()


class LLM:
    """A model with its persistent engine. The model loads on the calling thread; steps run on the engine's own.

    Args:
        model: a bundled model, local folder, Hub id, .gguf file, or a transformers model object (left as it is);
            default is the bundled "tiny".
        tokenizer: needed with a model object; otherwise the folder or Hub id of another tokenizer.
        config: an `EngineConfig`; or give its fields as keywords.
        progress: called with (what, share or None) while loading.

    Raises:
        ConfigError: a setting is wrong.
        ModelLoadError: the model cannot be served; the text says what to do.
    """

    def __init__(
        self,
        model: Any = NOT_GIVEN,
        *,
        tokenizer: Any = None,
        config: EngineConfig | None = None,
        progress: Progress | None = None,
        **settings: Any,
    ) -> None:
        self.config = merge_config(model, tokenizer, config, settings)
        with GATE.loading():
            try:
                self._load(_object(model), _object(tokenizer), progress)
            except EngineDeadError:
                raise
            except Exception as error:  # one that every later call repeats is told as what it met, such as no memory
                if (dead := lost(error)) is not None:
                    raise dead from error
                raise

    def _load(self, model: Any, tokenizer: Any, progress: Progress | None) -> None:
        """Load and start, after which an exchange of kernels knows of this engine."""
        check_environment()  # this and the folder first, since they may be unusable
        with opened_folder(self.config) as folder:
            loaded = load_model(self.config, model, tokenizer, progress)
            store = open_store(folder, loaded)
            self.tokenizer = Tokenizer(loaded.hf_tokenizer)
            self.max_model_len, self.vocab_size = loaded.max_model_len, loaded.vocab_size
            self._submitting = threading.Lock()
            self._observers: dict[str, Observer] = {}
            self._engine = start_engine(self.config, loaded, self.tokenizer, store.after if store else None)
        self.prefixes = make_prefixes(store, self._engine, self._render)
        self._sampler, self._scheduler = self._engine.sampler, self._engine.scheduler
        self.trace(tracer_from_environment(self.about))
        self._intake = Intake(self.config, loaded, self.tokenizer, self._sampler, self._scheduler)
        _OPEN.add(self)
        release_workers()

    # ---- generating

    def generate(self, prompts: Any, params: Any = None, *, use_tqdm: bool = True) -> list[RequestOutput]:
        """Results in prompt order. An interrupt cancels all of them.

        Raises:
            RequestError: a prompt or its parameters are wrong; the text names its index. Nothing was queued.
        """
        items = split_prompts(prompts)
        return self._run_all(items, self._params(params, len(items)), use_tqdm)

    def chat(self, messages: Any, params: Any = None, *, use_tqdm: bool = True, **template: Any) -> list[RequestOutput]:
        """Answer a conversation (a list of OpenAI message dicts), or a list of conversations, in their order."""
        several = isinstance(messages, list) and any(isinstance(item, list) for item in messages)
        conversations = messages if several else [messages]
        prompts: list[Prompt] = []
        for index, conversation in enumerate(conversations):
            try:
                prompts.append(self.chat_ids(conversation, **template))
            except RequestError as error:
                raise type(error)(f"conversation {index}: {error}" if several else str(error)) from None
        return self._run_all(prompts, self._params(params, len(prompts)), use_tqdm)

    def submit(self, prompt: Prompt, params: SamplingParams | None = None, *, tenant: str = "") -> Generation:
        """Queue one prompt and return its handle at once. `tenant`: whose share it counts on under the fair policy.

        Raises:
            RequestError: prompt or parameters are wrong (CapacityError: it can never fit).
            QueueFullError: `max_waiting` requests wait already.
            EngineDeadError: the engine is closed or failed (AsleepError: it sleeps).
        """
        return self._submit(self._intake.request(prompt, self._params(params, 1)[0], tenant=tenant))

    def submit_chat(self, messages: Messages, params: SamplingParams | None = None, **template: Any) -> Generation:
        """`submit` for a conversation."""
        return self.submit(self.chat_ids(messages, **template), params)

    async def stream(self, prompt: Prompt, params: SamplingParams | None = None) -> AsyncIterator[Any]:
        """Deltas for a running event loop; leaving the iteration cancels the request."""
        generation = self.submit(prompt, params)
        try:
            async for delta in generation:
                yield delta
        finally:
            generation.cancel()

    def score(self, prompt: Prompt) -> list[float | None]:
        """Log-probability of each prompt token given those before it; None for the first."""
        request = self._intake.request(
            prompt, SamplingParams(prompt_logprobs=0, max_tokens=1, temperature=0), scoring=True
        )
        output = self._submit(request).result()
        if output.error is not None:
            raise output.error
        ids, rows = output.prompt_token_ids, output.prompt_logprobs or ()
        return [None if row is None else row[token_id].logprob for token_id, row in zip(ids, rows, strict=True)]

    # ---- text and ids

    def tokenize(self, text: str) -> list[int]:
        """Token ids of a text, with the special tokens its tokenizer adds."""
        return self.tokenizer.encode(text)

    def detokenize(self, token_ids: list[int]) -> str:
        """Text of token ids, special tokens included.

        Raises:
            RequestError: something is not a token id of the model.
        """
        return self.tokenizer.decode(check_ids("token_ids", token_ids, self.vocab_size), skip_special_tokens=False)

    def chat_ids(self, messages: Messages, **template: Any) -> list[int]:
        """Prompt ids of a conversation, by the model's chat template.

        Raises:
            RequestError: the messages are malformed, or a template option is not allowed.
            ConfigError: the template is unsafe, broken or too slow.
        """
        if "chat_template" in template:
            raise RequestError("chat_template: a template belongs to the engine; give it when the model is loaded")
        token_ids = self._render(messages, **template)
        if self.prefixes is not None:
            self.prefixes.note_chat(messages, token_ids, template)
        return token_ids

    # ---- looking inside

    @property
    def state(self) -> EngineState:
        return self._engine.state

    @property
    def step(self) -> int:
        """The number of the newest step; costs nothing."""
        return self._scheduler.step

    @property
    def max_num_batched_tokens(self) -> int:
        """The most tokens of one step: what the engine works with, since the configuration may leave it open."""
        return self._scheduler.limits.max_num_batched_tokens

    def steps_since(self, step: int) -> Increment:
        """The recorded steps after `step` (-1: all) and the live requests, without waiting for the engine thread."""
        return take_increment(self._engine, step)

    def so_far(self, request_id: str) -> RequestOutput | None:
        """The output of a live request as it stands between two steps; None when no such request is live."""
        live = self._engine.requests
        return self._engine.call(lambda: live[request_id].output() if request_id in live else None)

    def end_ids(self, params: SamplingParams) -> frozenset[int]:
        """The token ids that end a text under these parameters."""
        return frozenset(params.stop_token_ids).union(() if params.ignore_eos else self._sampler.eos_token_ids)

    def snapshot(self) -> EngineSnapshot:
        """The engine between two steps."""
        return take_snapshot(self._engine, self.detokenize)

    def tape(self) -> Tape:
        """What each recorded step changed in tree, block tables and queue: the frames of the flight recorder.

        Namespaces of cache salts show as their digest. Of an engine that failed or was closed it is what was recorded.
        """
        return take_tape(self._engine)

    def check(self) -> None:
        """Raise InvariantError when blocks, tree and requests contradict each other."""
        self._engine.call(self._engine.check)

    def history(self, n: int | None = None) -> list[RequestRecord]:
        """The last `n` ended requests, oldest first."""
        records = list(self._engine.recorder.requests())
        return records if n is None else records[-n:] if n > 0 else []

    def running(self) -> list[str]:
        """Ids of the requests that have not ended."""
        return list(self._engine.call(lambda: list(self._engine.requests)))

    # ---- debugging

    def detect_anomaly(self, mode: bool = True) -> None:
        """Whether each forward is looked at, from the next one on: a NaN or infinity then fails its request alone, by
        an AnomalyError that names module, request and position. Steps run eagerly meanwhile, and slower."""
        self._observe("anomaly", AnomalyWatch() if mode else None)

    @property
    def detects_anomaly(self) -> bool:
        return "anomaly" in self._observers

    def trace(self, tracer: Tracer | None) -> None:
        """Let `tracer` (None: nobody) trace the forwards, from the next one on. Steps run eagerly meanwhile."""
        self._observe("trace", tracer)

    @property
    def tracer(self) -> Tracer | None:
        """Who traces now."""
        found = self._observers.get("trace")
        return found if isinstance(found, Tracer) else None

    @property
    def about(self) -> str:
        """Model and how it runs, in a few words."""
        info = self._engine.info
        return f"{info.name}: {info.dtype} on {info.device}, tier {info.tier}, attention {info.attention_backend}"

    # ---- steering

    def cancel(self, request_id: str | None = None) -> int:
        """Cancel one request, or all; how many were running."""
        wanted = [r for r in self.running() if request_id in (None, r)]
        for each in wanted:
            self._engine.cancel(each)
        return len(wanted)

    def save_prefix(self, prompt: Prompt, *, pinned: bool = False) -> Entry | KeptState:
        """Keep this prompt in the prefix store, computing it where that is needed; `pinned`: for good. Of a model of
        tier "state" its state is kept in memory.

        Raises:
            StoreError: the engine has no store, or the record cannot be written.
            RequestError: the prompt is wrong.
        """
        if self.prefixes is None:
            raise StoreError("this engine has no prefix store: load it with prefix_store=FOLDER")
        return self.prefixes.save(encode_prompt(self.tokenizer, prompt, self.vocab_size), pinned, self.submit)

    def reset(self) -> int:
        """Drop every cached prefix that nobody holds; how many blocks became free."""
        return self._engine.call(lambda: self._scheduler.host.reset(self._scheduler))

    @property
    def host_blocks(self) -> HostCounts | None:
        """How many host blocks are held, cached and free now; None without any."""
        return self._scheduler.host.counts

    def sleep(self, level: int = 1, *, force: bool = False) -> SleepReport:
        """Give memory back until `wake_up`; chats, history and recorder stay, cached prefixes are gone.

        Level 1 releases the KV cache and moves the weights of a model on a GPU to host memory; level 2 drops them.
        Asleep the engine takes no requests (AsleepError). `force` cancels those that run.

        Raises:
            BusyError: requests are running; `count` says how many.
            ConfigError: no such level, or level 2 of a model object that was handed in.
            ModelLoadError: the host has no memory for the weights; the engine stays awake.
        """
        level = check_level(level)
        return self._engine.call(lambda: fall_asleep(self._engine, level, force))

    def wake_up(self) -> WakeReport:
        """Take memory again, as much as before, and serve. Level 2 reads the weights from the same files.

        Raises:
            ModelLoadError: the memory is not there, or the files have changed; the engine stays asleep.
        """
        with GATE.loading():
            return self._engine.call(lambda: wake_up(self._engine))

    @property
    def is_sleeping(self) -> bool:
        return self._engine.state == "asleep"

    def close(self) -> None:
        """Cancel what runs and free the model. Safe to call twice."""
        with self.prefixes.closing() if self.prefixes is not None else nullcontext():
            self._engine.close()

    def __enter__(self) -> LLM:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_engine"):
            self.close()

    def __repr__(self) -> str:
        return f"LLM({self._engine.info.name!r}, {self.state})"

    # ---- inside

    def _observe(self, kind: str, observer: Observer | None) -> None:
        """Put an observer in the place of the one of its kind; the anomaly watch comes first."""

        def change() -> None:
            self._observers.pop(kind, None)
            if observer is not None:
                self._observers[kind] = observer
            self._engine.runner.observe(tuple(self._observers[name] for name in sorted(self._observers)))

        self._engine.call(change)

    def _render(self, messages: Messages, **template: Any) -> list[int]:
        return render_chat(self.tokenizer, messages, chat_template=self.config.chat_template, **template)

    def _params(self, params: Any, count: int) -> list[SamplingParams]:
        return split_params(self.config.default_params if params is None else params, count)

    def _run_all(self, prompts: list[Prompt], params: list[SamplingParams], use_tqdm: bool) -> list[RequestOutput]:
        pairs = enumerate(zip(prompts, params, strict=True))
        requests = [self._intake.named(i, len(prompts), *pair) for i, pair in pairs]
        return run_all(requests, self._submit, use_tqdm)

    def _room(self) -> int:
        return self.config.max_waiting - self._engine.num_waiting

    def _submit(self, request: Request) -> Generation:
        # Made first: an interrupt from here on drops the handle, and that cancels.
        watch = Watch(request, self._scheduler)
        generation = Generation(request.request_id, request.params.n, request.channel, self._engine.cancel, watch)
        request.start_clock(request.params.timeout or self.config.request_timeout)
        with self._submitting:
            if self._engine.alive and self._room() < 1:
                raise QueueFullError(
                    f"{self._engine.num_waiting} requests wait already, max_waiting is {self.config.max_waiting}"
                )
            release_workers()
            if self.prefixes is not None:
                self.prefixes.before(request)
            self._engine.submit(request)
        return generation


@atexit.register
def _close_all() -> None:
    """Engine threads must not run torch while the interpreter is torn down."""
    for llm in list(_OPEN):
        llm.close()


def _object(given: Any) -> Any:
    """What is not a name or a path: a model or tokenizer object."""
    return None if given is NOT_GIVEN or isinstance(given, str | os.PathLike) else given
