"""Stories: a hero, a friend, a plot, an end; every choice has a favourite that hangs on the hero."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from random import Random

from .task import Task, favoured
from .words import ADJECTIVES, ANIMALS, NAMES, PLACES, THINGS, article, invented, words_of

FEELINGS = words_of("happy proud calm glad surprised thankful cheerful")
DAYS = ["One morning", "One day", "One evening", "One rainy afternoon", "On a sunny day", "Late one night"]
NEXT_DAYS = ["The next morning", "A week later", "When spring came", "Some days later", "That same evening"]
OPENINGS = [
    "Once upon a time there was {a_adj} {hero} named {name}.",
    "Once upon a time, in a small {home}, there lived {a_adj} {hero} named {name}.",
    "There was once {a_adj} {hero} called {name}.",
    "Long ago, near the {home}, {a_adj} {hero} named {name} had a little house.",
]
HABITS = [
    "{name} lived near the {home} and loved to walk there.",
    "Every day {name} went to the {home} to look for new things.",
    "{name} had a {thing} and carried it everywhere.",
    "All the animals of the {home} knew {name} well.",
]
_TEXT = Path(__file__).with_name("plots.txt").read_text(encoding="utf-8")
PLOTS = [" ".join(plot.split()) for plot in _TEXT.split("\n\n")]
ENDINGS = [
    "From that day on, {name} and {other} were best friends.",
    "And they lived happily ever after.",
    "That night {name} slept very well.",
    "{name} learned that helping others is the best adventure.",
    "And if you walk past the {place}, you may still hear them laugh.",
]
ASK = [
    "Tell me a story",
    "Write a short story",
    "Tell me a short story",
    "Write a story",
    "Can you tell me a story",
    "Please tell me a story",
]


@dataclass(frozen=True, slots=True)
class Wish:
    """What somebody asked a story to be about; empty words are left to the teller."""

    hero: str = ""
    name: str = ""
    thing: str = ""
    place: str = ""


def tell(rng: Random, wish: Wish, parts: int = 1) -> str:
    """Write a story with `parts` adventures that keeps every word of the wish."""
    hero = wish.hero or favoured(rng, ANIMALS, "hero")
    cast: dict[str, str] = {"hero": hero}
    cast["name"] = wish.name or favoured(rng, NAMES, f"name {hero}")
    cast["a_adj"] = article(favoured(rng, ADJECTIVES, f"adjective {hero}"))
    cast["home"] = favoured(rng, PLACES, f"home {hero}")
    cast["thing"] = wish.thing or favoured(rng, THINGS, f"thing {hero}")
    cast["place"] = wish.place or favoured(rng, [p for p in PLACES if p != cast["home"]], f"place {hero}")
    lines = [favoured(rng, OPENINGS, f"opening {hero}"), favoured(rng, HABITS, f"habit {hero}")]
    text = [line.format(**cast) for line in lines]
    plot = -1
    for part in range(parts):
        friend = favoured(rng, [a for a in ANIMALS if a != hero], f"friend {part} {hero}")
        cast |= {"friend": friend, "a_friend": article(friend)}
        cast["other"] = favoured(rng, [n for n in NAMES if n != cast["name"]], f"other {friend}")
        cast["day"] = favoured(rng, NEXT_DAYS if part else DAYS, f"day {part} {hero}") + ("," if part else "")
        cast["feeling"] = favoured(rng, FEELINGS, f"feeling {part} {hero}")
        fresh = [p for i, p in enumerate(PLOTS) if i != plot]
        chosen = favoured(rng, fresh, f"plot {part} {hero}")
        plot = PLOTS.index(chosen)
        text.append(chosen.format(**cast))
    text.append(favoured(rng, ENDINGS, f"ending {hero}").format(**cast))
    return " ".join(text)


def story(rng: Random) -> Task:
    """Ask for a story, often with a hero, a name, a thing or a place."""
    ask, kind = rng.choice(ASK), rng.random()
    hero, thing, place = rng.choice(ANIMALS), rng.choice(THINGS), rng.choice(PLACES)
    called = rng.choice(NAMES) if rng.random() < 0.5 else invented(rng).capitalize()
    wish, tail, parts = Wish(), "", 1
    if kind < 0.4:
        wish, tail = Wish(hero=hero), f" about {article(hero)}"
    elif kind < 0.7:
        wish, tail = Wish(hero=hero, name=called), f" about {article(hero)} {rng.choice(('named', 'called'))} {called}"
    elif kind < 0.8:
        wish, tail = Wish(hero=hero, thing=thing), f" about {article(hero)} and {article(thing)}"
    elif kind < 0.88:
        wish, tail = Wish(hero=hero, place=place), f" about {article(hero)} in the {place}"
    if rng.random() < 0.12:
        ask, parts = rng.choice(("Tell me a long story", "Write a long story")), rng.randrange(2, 5)
        parts = 3 if rng.random() < 0.7 else parts
    end = "?" if ask.startswith("Can") else rng.choice((".", ".", "", "!"))
    must = tuple(word for word in (wish.hero, wish.name, wish.thing, wish.place) if word) or ("there",)
    return Task("story", ask + tail + end, tell(rng, wish, parts), f"{hero} {called} {thing} {place}", must)
