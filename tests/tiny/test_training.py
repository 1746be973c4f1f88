"""The training side: its network is a Llama, its text is packed whole, its plan goes up and down."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
import torch
from tiny.batches import ROW_SHARES, Batches, Packer
from tiny.corpus import MAKERS, short
from tiny.export import export, restore
from tiny.network import IGNORED, Network, Shape
from tiny.optimiser import orthogonal, plan
from tiny.task import Task, draw, favoured
from tokenizers import Tokenizer
from transformers import LlamaForCausalLM


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> Tokenizer:
    return Tokenizer.from_file(str(folder / "tokenizer.json"))


def random_network() -> Network:
    """Return a small network in which every part matters."""
    torch.manual_seed(3)
    network = Network(Shape(num_layers=2))
    for weight in network.parameters():
        torch.nn.init.normal_(weight, std=0.1)
    return network


def test_the_network_is_the_llama_that_transformers_loads(tmp_path: Path, tokenizer: Tokenizer) -> None:
    network = random_network()
    export(network, tokenizer, tmp_path)
    restore(network, tmp_path)
    model = LlamaForCausalLM.from_pretrained(tmp_path, dtype=torch.float32).eval()
    ids = torch.randint(0, 2048, (2, 50))
    with torch.no_grad():
        ours = network.stream(ids) @ network.embed_tokens.weight.T
        theirs = model(ids).logits
    torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)


def test_the_loss_counts_only_what_is_to_be_learned() -> None:
    network, ids = random_network(), torch.randint(0, 2048, (2, 20))
    targets = torch.full_like(ids, IGNORED)
    targets[0, 4], targets[1, 7] = 5, 9
    with torch.no_grad():
        loss = network(ids, targets)
        chances = torch.log_softmax(network.stream(ids) @ network.embed_tokens.weight.T, -1)
    expected = -(chances[0, 4, 5] + chances[1, 7, 9]) / 2
    torch.testing.assert_close(loss, expected)


def test_a_document_is_packed_whole_and_its_prompt_is_not_learned(tokenizer: Tokenizer) -> None:
    document = [("Count to two.", False), (" one two<|endoftext|>", True)]
    ids, targets = Packer(tokenizer, 64, lambda: document).row()
    one, learned = Packer(tokenizer, 64, lambda: document).encode(document)
    assert ids[: len(one)] == one
    assert targets[: len(one)] == learned
    answer = tokenizer.encode(" one two<|endoftext|>").ids
    assert [t for t in learned if t != IGNORED] == answer
    assert len(ids) == len(targets) == 64


def test_batches_come_in_every_length_and_again_for_the_same_seed(tokenizer: Tokenizer) -> None:
    first, second = Batches(tokenizer, 4), Batches(tokenizer, 4)
    lengths = set()
    for _ in range(60):
        (ids, targets), (same, _) = first.next(), second.next()
        assert torch.equal(ids, same)
        assert ids.shape == targets.shape
        lengths.add(ids.shape[1])
    assert lengths == set(ROW_SHARES)


def test_the_plan_rises_stays_and_falls() -> None:
    shares = [plan(step, 1000) for step in range(1000)]
    assert shares[0] < 0.05
    assert shares[100] == 1.0
    assert shares[-1] == 0.01
    assert all(0 < share <= 1 for share in shares)
    assert plan(100, 1000, resumed=True) > plan(900, 1000, resumed=True)


@pytest.mark.parametrize("shape", [(3, 8, 8), (2, 16, 4), (2, 4, 16)])
def test_a_step_is_made_nearly_orthogonal(shape: tuple[int, int, int]) -> None:
    torch.manual_seed(0)
    sizes = torch.linalg.svdvals(orthogonal(torch.randn(shape)))
    assert sizes.min() > 0.3
    assert sizes.max() < 1.5


def test_every_kind_of_task_keeps_the_split() -> None:
    rng = Random(1)
    for maker in MAKERS:
        assert not draw(maker, rng, held_out=False).held_out
        if maker.__name__ != "small_talk":
            assert draw(maker, rng, held_out=True).held_out


def test_a_split_that_cannot_be_met_is_an_error() -> None:
    with pytest.raises(ValueError, match="no task with held_out=True"):
        draw(lambda rng: Task("talk", "Hi", "Hello", ""), Random(0), held_out=True)


def test_a_favourite_is_clear() -> None:
    rng, options = Random(2), ["a", "b", "c", "d"]
    picks = [favoured(rng, options, "key") for _ in range(400)]
    assert max(picks.count(option) for option in options) > 260


def test_documents_end_with_their_mark() -> None:
    rng = Random(5)
    assert all(short(rng)[-1][0].endswith("<|endoftext|>") for _ in range(300))
