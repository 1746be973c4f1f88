"""The text `tiny` learns: tasks written as chats, as plain questions and as bare text, short and long."""

from __future__ import annotations

from random import Random

from . import arithmetic, copying, facts, stories, talk, terms
from .task import Task, TaskMaker, draw
from .words import ANIMALS, city, invented, name, names, noun

Segment = tuple[str, bool]  # a piece of text, and whether the model is to learn writing it
Document = list[Segment]

END_OF_TEXT, TURN_START, TURN_END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
MAKERS: dict[TaskMaker, float] = {
    facts.fact: 12,
    terms.term: 6,
    stories.story: 3,
    arithmetic.addition: 14,
    arithmetic.subtraction: 14,
    arithmetic.multiplication: 5,
    arithmetic.comparison: 9,
    arithmetic.counting: 13,
    copying.record: 15,
    copying.listing: 13,
    copying.repeating: 12,
    copying.picking: 7,
    copying.lookup: 13,
    copying.reading: 8,
    talk.small_talk: 3,
    talk.poem: 2,
    talk.shelf: 7,
}
SYSTEMS = (
    "You are a helpful assistant.",
    "You are a helpful assistant.",
    "You are a kind assistant.",
    "You are tiny, a small assistant.",
    "You answer in short sentences.",
    "You are a friendly teacher.",
    "Be brief.",
    "You are an expert in inference engines.",
)
_MAKERS, _WEIGHTS = list(MAKERS), list(MAKERS.values())


def any_task(rng: Random) -> Task:
    """Draw a task that training may see."""
    return draw(rng.choices(_MAKERS, _WEIGHTS)[0], rng, held_out=False)


def said(role: str, text: str) -> Segment:
    """Return a message that the model only reads."""
    return f"{TURN_START}{role}\n{text}{TURN_END}\n", False


def answered(text: str) -> Document:
    """Return an answer that the model learns to write and to end."""
    return [(f"{TURN_START}assistant\n", False), (text + TURN_END, True), ("\n", False)]


def system(rng: Random) -> Document:
    """Return a system message, or none."""
    if rng.random() < 0.5:
        return []
    text = rng.choice(SYSTEMS)
    if rng.random() < 0.15:
        text += f" Your name is {name(rng)} and you work for {noun(rng)} in {city(rng)}."
    return [said("system", text)]


def chat(rng: Random, turns: int) -> Document:
    """Write a conversation of `turns` tasks, some of which recall what was said before."""
    document, pending = system(rng), []
    if turns > 1 and rng.random() < 0.5:
        first, later = talk.memory(rng)
        document += [said("user", first[0]), *answered(first[1])]
        pending.append((rng.randrange(turns), later))
    for turn in range(turns):
        task = any_task(rng)
        document += [said("user", task.prompt), *answered(task.answer)]
        for due, (question, answer) in pending:
            if due == turn:
                document += [said("user", question), *answered(answer)]
    return [*document, (END_OF_TEXT, False)]


def questions(rng: Random) -> Document:
    """Write one to five plain questions with their answers."""
    document: Document = []
    for turn in range(rng.choice((1, 1, 1, 2, 3, 5))):
        task = any_task(rng)
        document += [
            (f"{chr(10) * 2 if turn else ''}Question: {task.prompt}\nAnswer:", False),
            (" " + task.answer, True),
        ]
    return [*document, (END_OF_TEXT, True)]


def bare(rng: Random) -> Document:
    """Write a task with no frame at all: the answer starts on the next line."""
    task = any_task(rng)
    return [(task.prompt, False), ("\n" + task.answer + END_OF_TEXT, True)]


def plain_story(rng: Random) -> Document:
    """Write a story by itself; its first words may be all that is known."""
    wish = stories.Wish() if rng.random() < 0.5 else stories.Wish(hero=rng.choice(ANIMALS))
    if rng.random() < 0.4:
        wish = stories.Wish(hero=rng.choice(ANIMALS), name=invented(rng).capitalize())
    parts = rng.choice((1, 1, 1, 1, 2, 3))
    return [(stories.tell(rng, wish, parts) + END_OF_TEXT, True)]


def plain_fact(rng: Random) -> Document:
    """Write a sentence about a fact."""
    start, end = facts.statement(rng)
    return [(start, False), (end + END_OF_TEXT, True)]


def worksheet(rng: Random) -> Document:
    """Write lines of bare sums and differences: many results for few tokens."""
    document: Document = []
    for _ in range(rng.choice((1, 2, 8, 12, 16))):
        task = draw(arithmetic.line, rng, held_out=False)
        document += [(("\n" if document else "") + task.prompt, False), (" " + task.answer, True)]
    return [*document, (END_OF_TEXT, True)]


def short(rng: Random) -> Document:
    """Write a document that most often fits in a few hundred tokens."""
    kind = rng.random()
    if kind < 0.58:
        return chat(rng, rng.choice((1, 1, 1, 2, 3)))
    if kind < 0.74:
        return questions(rng)
    if kind < 0.88:
        return bare(rng)
    if kind < 0.94:
        return worksheet(rng)
    return plain_story(rng) if kind < 0.97 else plain_fact(rng)


def sheet(rng: Random, size: int) -> Document:
    """Write a conversation about a long table that the first message holds."""
    pairs = dict(copying.entries(rng, size))
    form = rng.randrange(4)
    text = copying.table(list(pairs.items()), form)
    intro = rng.choice(
        ("Here is a table.", "You answer questions about this table.", "Read these notes.", "These are the entries.")
    )
    document: Document = [said(rng.choice(("system", "user")), f"{intro}\n{text}")]
    if document[0][0].startswith(f"{TURN_START}user"):
        document += answered("I have read it.")
    for _ in range(rng.randrange(4, 12)):
        key = rng.choice(list(pairs))
        ask = rng.choice(("What is the value of {k}?", "What is {k}?", "Look up {k}.", "Find {k}."))
        document += [said("user", ask.format(k=key)), *answered(copying.table([(key, pairs[key])], form))]
        if rng.random() < 0.2:
            task = any_task(rng)
            document += [said("user", task.prompt), *answered(task.answer)]
    return [*document, (END_OF_TEXT, False)]


def tale(rng: Random, size: int) -> Document:
    """Write several stories after each other, then ask who was in them."""
    heroes = rng.sample(ANIMALS, size)
    cast = dict(zip(heroes, names(rng, size), strict=True))
    text = "\n\n".join(stories.tell(rng, stories.Wish(hero=hero, name=cast[hero])) for hero in heroes)
    document: Document = [said("user", f"Read this.\n{text}"), *answered("I have read it.")]
    for hero in rng.sample(heroes, min(size, 6)):
        ask = rng.choice(("What is the name of the {h}?", "What was the {h} called?", "Who was the {h}?"))
        document += [said("user", ask.format(h=hero)), *answered(f"The name of the {hero} is {cast[hero]}.")]
    return [*document, (END_OF_TEXT, False)]


def long(rng: Random, length: int) -> Document:
    """Write a document of very roughly `length` tokens whose end refers to its start."""
    kind, share = rng.random(), rng.uniform(0.3, 1.0) * length
    if kind < 0.25:
        task = draw(lambda r: copying.lookup(r, max(4, int(share / 22))), rng, held_out=False)
        return [*system(rng), said("user", task.prompt), *answered(task.answer), (END_OF_TEXT, False)]
    if kind < 0.5:
        return sheet(rng, max(4, int(share / 20)))
    if kind < 0.65:
        return tale(rng, max(2, min(len(ANIMALS), int(share / 180))))
    return chat(rng, max(3, int(share / 75)))
