"""Copying: what the prompt says comes back, as JSON, as a list, from a look-up, or word for word."""

from __future__ import annotations

import json
from random import Random

from .task import Task
from .words import ANIMALS, COLORS, JOBS, PLACES, article, city, invented, name, names, noun, nouns, number, series

REPEAT_ASK = [
    "Repeat after me: {x}",
    "Say: {x}",
    "Repeat this: {x}",
    "Please repeat: {x}",
    "Say exactly this: {x}",
    "Copy this text: {x}",
    "Echo: {x}",
]
JSON_LIST_ASK = [
    "Make a JSON list of {x}.",
    "Write {x} as a JSON list.",
    "Write a JSON list with {x}.",
    "Turn this into a JSON list: {x}",
]
BULLET_ASK = ["Make a list of {x}.", "Write {x} as a list.", "Write a list with {x}.", "Turn this into a list: {x}"]
NUMBERED_ASK = ["Make a numbered list of {x}.", "Write {x} as a numbered list.", "Turn this into a numbered list: {x}"]


def _person(rng: Random) -> tuple[str, dict[str, str | int]]:
    """Return a sentence about somebody and the record it stands for."""
    who, age, job, town, pet, place = (
        name(rng),
        rng.randrange(1, 100),
        rng.choice(JOBS),
        city(rng),
        noun(rng),
        rng.choice(PLACES),
    )
    if rng.random() < 0.5:
        pet = rng.choice(ANIMALS)
    forms: list[tuple[str, dict[str, str | int]]] = [
        (
            f"{who}, {age} years old, who has {article(pet)} and lives near the {place}",
            {"name": who, "age": age, "animal": pet, "place": place},
        ),
        (f"{who}, who is {age} years old and lives in {town}", {"name": who, "age": age, "city": town}),
        (f"{who}, {age}, {article(job)} from {town}", {"name": who, "age": age, "job": job, "city": town}),
        (f"{who}, {article(job)} who lives in {town}", {"name": who, "job": job, "city": town}),
        (f"{who}, who has {article(pet)} and is {age} years old", {"name": who, "animal": pet, "age": age}),
        (f"{who} from {town}", {"name": who, "city": town}),
        (f"{who}, {age} years old", {"name": who, "age": age}),
    ]
    return rng.choice(forms)


def _thing(rng: Random) -> tuple[str, dict[str, str | int]]:
    """Return a phrase about a thing for sale and the record it stands for."""
    item, color, price, count = noun(rng), rng.choice(COLORS), number(rng), rng.randrange(1, 100)
    forms: list[tuple[str, dict[str, str | int]]] = [
        (f"a {color} {item} that costs {price}", {"item": item, "color": color, "price": price}),
        (f"{article(item)} that costs {price}", {"item": item, "price": price}),
        (f"the item {item} with price {price} and count {count}", {"item": item, "price": price, "count": count}),
        (f"the item {item} in {color}", {"item": item, "color": color}),
    ]
    return rng.choice(forms)


def _fields(rng: Random) -> tuple[str, dict[str, str | int]]:
    """Return fields that the prompt itself names, and their record."""
    keys = nouns(rng, rng.randrange(1, 5))
    if rng.random() < 0.5:
        keys = rng.sample(["name", "age", "city", "color", "price", "job", "animal", "id", "title", "count"], len(keys))
    values: list[str | int] = [rng.choice((number(rng), noun(rng), name(rng))) for _ in keys]
    return series([f"{key} {value}" for key, value in zip(keys, values, strict=True)]), dict(
        zip(keys, values, strict=True)
    )


def record(rng: Random) -> Task:
    """Ask for a JSON record of what a sentence says."""
    said, data = rng.choice((_person, _person, _person, _thing, _fields))(rng)
    if rng.random() < 0.3:
        ask = rng.choice(("Write {x} as JSON.", "Turn this into JSON: {x}", "JSON for {x}, please."))
    else:
        ask = rng.choice(
            (
                "Write a JSON record for {x}.",
                "Make a JSON record for {x}.",
                "Write a JSON object for {x}.",
                "Give me a JSON record for {x}.",
            )
        )
    return Task("record", ask.format(x=said), json.dumps(data), said)


def listing(rng: Random) -> Task:
    """Ask to write what the prompt names as a JSON, bullet or numbered list."""
    words = (names if rng.random() < 0.25 else nouns)(rng, rng.randrange(2, 8))
    if rng.random() < 0.15:
        words = [str(number(rng)) for _ in words]
    said = series(words) if rng.random() < 0.5 else ", ".join(words)
    kind = rng.random()
    if kind < 0.4:
        digits = all(word.isdigit() for word in words)
        ask, answer = rng.choice(JSON_LIST_ASK), json.dumps([int(w) for w in words] if digits else words)
    elif kind < 0.7:
        ask, answer = rng.choice(BULLET_ASK), "\n".join(f"- {word}" for word in words)
    else:
        ask, answer = rng.choice(NUMBERED_ASK), "\n".join(f"{i}. {word}" for i, word in enumerate(words, 1))
    return Task("list", ask.format(x=said), answer, said)


def phrase(rng: Random) -> str:
    """Return a few words that need not make sense."""
    kind = rng.random()
    if kind < 0.2:
        return invented(rng)
    if kind < 0.4:
        return " ".join(noun(rng) for _ in range(rng.randrange(2, 9)))
    if kind < 0.55:
        return " ".join(str(number(rng)) for _ in range(rng.randrange(1, 6)))
    if kind < 0.7:
        return f"The {rng.choice(COLORS)} {noun(rng)} of {name(rng)} is in {city(rng)}."
    if kind < 0.85:
        return f"{name(rng)} has {number(rng)} {noun(rng)}s and {article(noun(rng))}."
    return " ".join(rng.choice((noun(rng), name(rng), str(number(rng)))) for _ in range(rng.randrange(3, 12)))


def repeating(rng: Random) -> Task:
    """Ask to say something word for word."""
    said = phrase(rng)
    return Task("repeat", rng.choice(REPEAT_ASK).format(x=said), said, said)


def picking(rng: Random) -> Task:
    """Ask for the first, the last or all words of a list in reverse."""
    words = (names if rng.random() < 0.3 else nouns)(rng, rng.randrange(2, 7))
    said, kind = ", ".join(words), rng.random()
    if kind < 0.35:
        ask, answer = (
            rng.choice(("What is the first word of this list: {x}?", "Give me the first word of {x}.")),
            words[0],
        )
    elif kind < 0.7:
        ask, answer = (
            rng.choice(("What is the last word of this list: {x}?", "Give me the last word of {x}.")),
            words[-1],
        )
    else:
        ask, answer = rng.choice(("Reverse this list: {x}", "Write in reverse order: {x}")), ", ".join(reversed(words))
    return Task("pick", ask.format(x=said), answer, f"{said} {kind < 0.35} {kind < 0.7}")


def entries(rng: Random, count: int) -> list[tuple[str, str]]:
    """Return `count` different keys, each with a value."""
    keys = (names if rng.random() < 0.5 else nouns)(rng, count)
    kind = rng.random()
    return [(key, str(number(rng)) if kind < 0.5 else noun(rng) if kind < 0.8 else city(rng)) for key in keys]


def table(pairs: list[tuple[str, str]], form: int) -> str:
    """Write the entries in one of four forms."""
    if form == 0:
        return "\n".join(f"{key}: {value}" for key, value in pairs)
    if form == 1:
        return "\n".join(f"- {key} = {value}" for key, value in pairs)
    if form == 2:
        return json.dumps(dict(pairs))
    return " ".join(f"The value of {key} is {value}." for key, value in pairs)


def lookup(rng: Random, count: int = 0) -> Task:
    """Give a table and ask for one entry of it; the answer is the entry as the table writes it."""
    pairs = entries(rng, count or rng.randrange(1, 9))
    key, value = rng.choice(pairs)
    form = rng.randrange(4)
    text = table(pairs, form)
    ask = rng.choice(
        ("What is the value of {k}?", "What is {k}?", "Look up {k}.", "Find {k}.", "Tell me the value of {k}.")
    ).format(k=key)
    prompt = f"{text}\n{ask}" if rng.random() < 0.8 else f"{ask}\n{text}"
    return Task("lookup", prompt, table([(key, value)], form), f"{key} {value} {len(pairs)}")


READING_ASK = {
    "lives in": "Where does {w} live?",
    "has": "What does {w} have?",
    "likes": "What does {w} like?",
    "works as": "What is the job of {w}?",
}


def _completion(rng: Random, relation: str) -> str:
    """Return what may stand behind the words of the relation."""
    if relation == "lives in":
        return city(rng)
    if relation == "has":
        return article(noun(rng))
    return noun(rng) if relation == "likes" else article(rng.choice(JOBS))


def reading(rng: Random) -> Task:
    """Tell where people live or what they own, and ask about one of them."""
    people = names(rng, rng.randrange(1, 5))
    relation = rng.choice(list(READING_ASK))
    facts = [(who, _completion(rng, relation)) for who in people]
    who, what = rng.choice(facts)
    text = " ".join(f"{w} {relation} {x}." for w, x in facts)
    prompt = f"{text} {READING_ASK[relation].format(w=who)}"
    return Task("reading", prompt, f"{who} {relation} {what}.", f"{who} {what}")
