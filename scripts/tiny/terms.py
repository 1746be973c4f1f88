"""Terms of an inference engine and of the notebook around it, each explained in a sentence or two."""

from __future__ import annotations

from random import Random

from .task import Task

TERMS: dict[str, str] = {
    "a KV cache": "A KV cache stores the keys and values of past tokens so that they are not computed again.",
    "paged attention": "Paged attention keeps the KV cache in fixed-size blocks that need not lie next to each other, so no memory is wasted.",
    "a block table": "A block table maps the logical blocks of a sequence to physical blocks of the cache.",
    "a block": "A block is a fixed number of token slots in the KV cache, and the unit in which memory is handed out.",
    "the block pool": "The block pool owns all blocks of the KV cache, counts who uses them, and hands out the free ones.",
    "continuous batching": "Continuous batching lets requests join and leave the batch at every step.",
    "prefill": "Prefill computes the keys and values of the whole prompt in parallel.",
    "decode": "Decode generates one token at a time and reads the past from the KV cache.",
    "chunked prefill": "Chunked prefill splits a long prompt into pieces that share steps with decodes.",
    "a radix tree": "A radix tree stores token sequences so that shared prefixes are kept only once.",
    "a radix cache": "A radix cache keeps finished prompts in a radix tree, so a new prompt reuses the blocks of its longest known prefix.",
    "prefix caching": "Prefix caching reuses the KV blocks of a prompt start that was computed before.",
    "a token": "A token is a small piece of text that the model reads as one number.",
    "a tokenizer": "A tokenizer cuts text into tokens and joins tokens back into text.",
    "a scheduler": "A scheduler decides at every step which requests run and how many tokens each of them may compute.",
    "preemption": "Preemption takes blocks away from a running request and resumes it later.",
    "eviction": "Eviction frees cached blocks that nobody uses, the least recently used first.",
    "a reference count": "A reference count says how many requests use a block; at zero the block may be freed.",
    "copy-on-write": "Copy-on-write shares a block until somebody wants to change it, and copies it only then.",
    "flash attention": "Flash attention computes attention tile by tile without storing the score matrix.",
    "attention": "Attention lets each token look at the tokens before it and mix in what matters.",
    "temperature": "Temperature scales the logits before sampling; zero means greedy.",
    "top-p sampling": "Top-p sampling draws from the smallest set of tokens whose probabilities add up to p.",
    "top-k sampling": "Top-k sampling draws only from the k most likely tokens.",
    "greedy decoding": "Greedy decoding always takes the most likely token.",
    "a logit": "A logit is the raw score of a token before softmax turns scores into probabilities.",
    "a stop string": "A stop string ends the generation as soon as the text contains it.",
    "speculative decoding": "Speculative decoding guesses several tokens cheaply and checks them in one step of the big model.",
    "quantization": "Quantization stores weights with fewer bits to save memory.",
    "a CUDA kernel": "A CUDA kernel is a small program that runs on many GPU threads at once.",
    "NVRTC": "NVRTC compiles CUDA source code while the program is running.",
    "tensor parallelism": "Tensor parallelism splits the weights of every layer over several devices.",
    "a transformer": "A transformer is a neural network of layers that use attention and feed-forward parts.",
    "an embedding": "An embedding is a vector of numbers that stands for a token.",
    "a language model": "A language model predicts the next token of a text.",
    "latency": "Latency is the time a request waits for its answer.",
    "throughput": "Throughput is the number of tokens that an engine produces per second.",
    "time to first token": "Time to first token is how long a request waits until its first token appears.",
    "a batch": "A batch is a group of requests that the model computes together in one step.",
    "a context window": "A context window is the largest number of tokens that the model can see at once.",
    "a system prompt": "A system prompt is the first message of a chat and tells the model how to behave.",
    "a Jupyter notebook": "A Jupyter notebook is a document of cells that mix code, text and results.",
    "a magic command": "A magic command is a short notebook command that starts with a percent sign.",
    "YAIE Magic": "YAIE Magic is a real inference engine that lives inside a Jupyter session.",
    "a streaming answer": "A streaming answer appears token by token while the model is still writing.",
    "streaming": "Streaming shows each token as soon as it is generated.",
    "sampling": "Sampling draws the next token at random by its probability.",
    "memory fragmentation": "Memory fragmentation leaves free gaps that are too small to use; fixed-size blocks avoid it.",
    "a seed": "A seed fixes the random numbers, so the same request gives the same text again.",
    "a GPU": "A GPU is a processor with many small cores that work in parallel.",
}
ASKS = ("What is {x}?", "Explain {x}.", "Tell me what {x} is.", "Can you explain {x}?", "Explain {x} in one sentence.", "What does {x} mean?", "Describe {x}.", "Please explain {x}.")
BARE_ASKS = ("Explain {x}", "Define {x}", "What is {x}", "what is {x}?", "explain {x}", "In short, what is {x}?")


def term(rng: Random) -> Task:
    """Ask for an engine term; the split holds out single phrasings of it."""
    subject = rng.choice(list(TERMS))
    ask = rng.choice(ASKS if rng.random() < 0.75 else BARE_ASKS)
    said = subject
    if ask not in ASKS[:2] and rng.random() < 0.15:
        said = subject.removeprefix("a ").removeprefix("an ").removeprefix("the ")
    return Task("term", ask.format(x=said), TERMS[subject], f"{subject} {ask}")
