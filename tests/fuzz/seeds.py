"""Writes the seeds of the corpus: `python -m tests.fuzz.seeds`. What a run found is put beside them by hand."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence

from tests.fuzz.targets import CORPUS
from yaie_engine.store.record import encode_head, head_of

CONFIG = {"model_type": "llama", "vocab_size": 96, "hidden_size": 64, "num_hidden_layers": 2}
COUNTERS = (
    "prompt_tokens", "cached_tokens", "computed_tokens", "generated_tokens", "preemptions", "evictions", "copies",
    "breaches",
)  # fmt: skip
TENSORS = {
    "a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
    "__metadata__": {"format": "pt"},
    "b": {"dtype": "BF16", "shape": [4], "data_offsets": [24, 32]},
}


def _weights(header: object, size: int = 32) -> bytes:
    raw = json.dumps(header).encode()
    return struct.pack("<Q", len(raw)) + raw + bytes(size)


def _trace(**changes: object) -> bytes:
    line = {"step": 1, "forward": 0, "module": "model.layers.0", "depth": 0, "shape": [1, 4], "dtype": "float32",
            "norm": 2.0, "largest": 1.0, "mark": 0.5, "num_bad": 0, "ms": 0.1, "requests": "r"}  # fmt: skip
    rows = [{"yaie_trace": 1, "about": "tiny"}, line | changes]
    return "\n".join(map(json.dumps, rows)).encode()


def _word(text: bytes) -> bytes:
    return struct.pack("<Q", len(text)) + text


def _gguf() -> bytes:
    entries = _word(b"general.architecture") + struct.pack("<I", 8) + _word(b"llama")
    entries += _word(b"n") + struct.pack("<II", 4, 7) + _word(b"l") + struct.pack("<IIQ2f", 9, 6, 2, 1, 2)
    tensor = _word(b"t") + struct.pack("<IQIQ", 1, 4, 0, 0)
    return b"GGUF" + struct.pack("<IQQ", 3, 1, 3) + entries + tensor + bytes(16)


def _call(arguments: str) -> dict[str, object]:
    return {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": arguments}}]}


def _chat(**more: object) -> bytes:
    return b"\0" + json.dumps({"messages": [{"role": "user", "content": "x"}], **more}).encode()


def _record(mode: int, **changes: object) -> bytes:
    """A record of the prefix store with 16 tokens and the layout of its target."""
    places = (("k.0", 2, 0, 128), ("v.0", 2, 128, 256), ("k.3", 2, 256, 384), ("v.3", 1, 384, 448))
    tensors = {
        name: {"dtype": "F32", "shape": [16, 1, dim], "data_offsets": [start, stop]}
        for name, dim, start, stop in places
    }
    return _sealed(mode, tensors | changes, 448)


def _state(mode: int, logits: bool = True, **changes: object) -> bytes:
    """A record of a whole state after 16 tokens."""
    tensors: dict[str, object] = {"keys": {"dtype": "F32", "shape": [1, 15, 2], "data_offsets": [0, 120]}}
    if logits:
        tensors["logits"] = {"dtype": "F32", "shape": [1, 4], "data_offsets": [120, 136]}
    size = 142 if logits else 126
    tensors["conv.0"] = {"dtype": "BF16", "shape": [3], "data_offsets": [size - 6, size]}
    return _sealed(mode, tensors | changes, size)


def _sealed(mode: int, tensors: dict[str, object], size: int) -> bytes:
    raw = json.dumps(tensors).encode()
    raw += b" " * (-len(raw) % 8)
    body = struct.pack("<Q", len(raw)) + raw + bytes(size)
    return bytes([mode]) + encode_head(head_of("ab" * 32, 12.5, range(16), body)) + body


def _node(parent: int | None, count: int) -> dict[str, object]:
    """A node without its id, which is its place."""
    return {"parent": parent, "num_tokens": count, "token_ids": [*range(count)], "text": "x", "blocks": [],
            "ref_count": 0, "last_used_step": 0, "namespace": "", "request_ids": []}  # fmt: skip


def _kept(parent: int | None, start: int, stop: int) -> dict[str, object]:
    return {"label": "ab12cd34", "parent": parent, "num_tokens": stop, "token_ids": [*range(start, stop)], "text": "x",
            "num_bytes": 99, "hits": 0, "pinned": False, "age_s": 1.5, "namespace": ""}  # fmt: skip


def _snapshot(tree: Sequence[dict[str, object]] = (), **changes: object) -> bytes:
    model = {"name": "tiny", "fingerprint": "", "dtype": "float32", "device": "cpu", "tier": "state",
             "attention_backend": "reference", "reason": "", "max_model_len": 64}  # fmt: skip
    document = {
        "version": 1,
        "state": "ready",
        "step": 3,
        "model": model,
        "blocks": {"block_size": 4, "total": 8, "free": 8, "held": 0, "cached": 0},
        "queue": dict.fromkeys(("waiting", "prefill", "decode", "preempted", "swapped"), 0),
        "requests": [],
        "tree": [{"id": place, **node} for place, node in enumerate(tree or [_node(None, 0)])],
        "steps": [],
        "counters": {"requests": {"stop": 1}, **dict.fromkeys(COUNTERS, 0)},
    }
    return json.dumps({**document, **changes}).encode()


SEEDS: dict[str, dict[str, bytes]] = {
    "batch_lines": {
        "sound": b'"a"\n\n{"prompt": [1, 2], "max_tokens": 3}\n{"prompt": "x"}\n',
        "deep": b"[" * 4000,
    },
    "config_screen": {
        "sound": json.dumps(CONFIG).encode(),
        "auto_map": json.dumps({**CONFIG, "text_config": [{"auto_map": {"AutoConfig": "x.Y"}}]}).encode(),
        "internal": json.dumps({**CONFIG, "_attn_implementation_internal": "a/b"}).encode(),
        "kernel": json.dumps({**CONFIG, "kernel_config": {"kernel_mapping": {"N": ["a/b@v1"]}}}).encode(),
        "deep": b'{"a":' * 2000 + b"1" + b"}" * 2000,
        "digits": b'{"vocab_size": ' + b"9" * 5000 + b"}",
        "nan": b'{"vocab_size": NaN, "x": 1e999}',
    },
    "detokenizer": {
        "bytes": bytes([0, 0]) + bytes(range(120)),
        "pieces": bytes([1, 1]) + bytes(range(120)),
        "shown specials": bytes([0, 2]) + b"\0\1\0\0" * 9,
    },
    "dot_escape": {
        "markup": b'"]; evil [label=<<B>x</B>>] \\N \\G &amp; <script>',
        "bidi": "\u202eabc\u2066\u200b\u0000\x1b[31m".encode(),
        "surrogate": b"\xed\xa0\x80 \xff",
    },
    "event_stream": {
        "events": b'\2data: {"a": 1}\n\ndata:x\ndata: y\r\n\r\n: note\n\ndata: [DONE]\n\n',
        "returns": b"\0data: a\r\rdata: b\r\n\rdata: c\n\r\n",
        "broken": b"\1data: \xff\xfe\ndata\n\nid: 3\n\n",
    },
    "gguf_head": {"sound": _gguf(), "counts": b"GGUF" + struct.pack("<IQQ", 3, 2**60, 2**60)},
    "host": {
        "name": b"127.0.0.1:8000",
        "six": b"[::1]:8000",
        "user": b"a@127.0.0.1",
        "port": b"127.0.0.1:evil.com",
    },
    "magic_line": {
        "options": b"\0--max-tokens 3 --stop '---' --temperature 0.5 name",
        "load": b"\3tiny --block-size 16 --num-blocks=64 --dtype float32",
        "wrong": b'\4--port 99999999999999999999 --host "a b',
        "escapes": b'\1--stop "\\n" \\n --n 1e999 --seed 0x10 --logit-bias {"1":',
        "escaped quotes": b"\0" + b'\\"' * 2000,
        "an open quote of escapes": b'\0"' + b'\\"' * 2000 + b"\\",
        "words": b"\0" + b"-t 1 " * 800,
    },
    "messages": {
        "calls": _chat(messages=[_call('{"a": [1]}')])[1:],
        "deep call": _chat(messages=[_call("[" * 4000)])[1:],
        "no number": _chat(messages=[_call("[NaN, 1e999]")])[1:],
    },
    "metrics": {
        "sound": b'# TYPE yaie:ttft histogram\nyaie:ttft_bucket{le="1"} 2\nyaie:ttft_bucket{le="+Inf"} 3\n'
        b"yaie:ttft_sum 4\nyaie:ttft_count 3\nvllm:x 1e999\n",
        "broken": b'yaie:x{a="\\n\nyaie:y{} NaN\n# TYPE yaie:y',
    },
    "model_cards": {
        "own": b'{"data": [{"id": "tiny", "owned_by": "yaie", "max_model_len": 9, "engine": {"config": {"n": 1}}}]}',
        "names": b'{"data": [{"id": "a\\u001b[2J"}, {"id": 3}, {"id": ""}, {"id": "b"}]}',
    },
    "openai_schema": {
        "chat": _chat(max_tokens=3, stop=["a"], logit_bias={"3": 1.5}),
        "template": _chat(chat_template="{{ 1 }}", chat_template_kwargs={"chat_template": "x"}),
        "completion": b'\1{"prompt": [[1, 2], [3]], "n": 2}',
        "bounds": b'\2{"prompt": "x", "max_tokens": 1e999, "seed": -1, "temperature": NaN}',
        "deep": b"\3" + b"[" * 5000,
    },
    "recording": {
        "empty": b"{}",
        "twice": b'{"format": "a", "format": "b"}',
        "packed": b"\x1f\x8b\x08\0\0\0\0\0\0\0cut",
    },
    "remote_answer": {
        "completion": b'data: {"id": "a", "choices": [{"index": 1, "text": "x", "token_ids": [3]}]}\n\n'
        b'data: {"choices": [{"text": "y", "finish_reason": "stop"}], "usage": {"prompt_tokens": 3}}\n\n',
        "chat": b'data: {"choices": [{"delta": {"content": "x"}, "logprobs": {"content": []}}]}\n\n',
        "lies": b'data: {"choices": [{"index": true}], "usage": {"prompt_tokens": -1}, "request_ids": [[]]}\n\n',
    },
    "snapshot": {
        "states": _snapshot(states=[_kept(None, 0, 16), _kept(0, 16, 20), _kept(0, 16, 18)]),
        "chained": _snapshot(states=[_kept(at - 1 if at else None, at, at + 1) for at in range(40)]),
        "empty states": _snapshot(states=[_kept(at - 1 if at else None, 0, 0) for at in range(40)]),
        "empty nodes": _snapshot(tree=[_node(None, 0), *(_node(at, 0) for at in range(40))]),
        "tree": _snapshot(tree=[_node(None, 0), _node(0, 3), _node(1, 2), _node(0, 0), _node(3, 4)]),
        "lies": _snapshot(blocks={"block_size": 0, "total": 10**400, "free": -1, "held": 0, "cached": 0}),
        "deep": b'{"version": 1, "x": ' + b"[" * 4000,
    },
    "stop_matcher": {
        "overlap": b"\2abab\0ba\0aababab",
        "suffix": b"\1bc\0abcd\0xabcx",
        "late": b"\0###\0\n\n\0text ## # ### more",
    },
    "store_record": {
        "whole": _record(0),
        "sealed": _record(1),
        "another shape": _record(1, **{"k.0": {"dtype": "F32", "shape": [16, 2, 1], "data_offsets": [0, 128]}}),
        "cut": _record(1)[:120],
    },
    "store_state": {
        "whole": _state(0),
        "sealed": _state(1),
        "without logits": _state(1, logits=False),
        "another dtype": _state(1, keys={"dtype": "BF16", "shape": [1, 30, 2], "data_offsets": [0, 120]}),
        "too long": _state(1, keys={"dtype": "F32", "shape": [1, 17, 2], "data_offsets": [0, 136]}),
    },
    "tensor_header": {
        "sound": _weights(TENSORS),
        "long shape": _weights({"a": {"dtype": "F32", "shape": [2**63] * 2000, "data_offsets": [0, 32]}}),
        "overlap": _weights({**TENSORS, "c": TENSORS["a"]}),
        "huge": struct.pack("<Q", 2**62) + b"{}",
    },
    "trace": {
        "sound": _trace(),
        "endless": _trace(step=float("inf")),
        "long": _trace(norm=10**400),
        "escapes": _trace(module="\x1b[2J\n\u202e\ud800", requests="\x9b1m"),
        "shape": _trace(shape="12"),
        "empty": b'{"yaie_trace": 1, "about": "\\u0007"}\n',
    },
}
"""Inputs by target and name."""


if __name__ == "__main__":
    for target, named in SEEDS.items():
        (CORPUS / target).mkdir(parents=True, exist_ok=True)
        for name, data in named.items():
            (CORPUS / target / name.replace(" ", "_")).write_bytes(data)
