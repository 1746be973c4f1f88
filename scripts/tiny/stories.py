"""Stories: a hero, a friend, a plot, an end; every choice has a favourite that hangs on the hero."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from .task import Task, favoured
from .words import ADJECTIVES, ANIMALS, NAMES, PLACES, THINGS, article, invented

FEELINGS = "happy proud calm glad surprised thankful cheerful".split()
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
PLOTS = [
    "{day} {name} lost the {thing} near the {place}. {name} looked under the stones and behind the trees, but the {thing} was "
    "not there. Then {a_friend} named {other} came along and asked, \"What are you looking for?\" \"My {thing},\" said {name}. "
    "Together they searched until {other} found the {thing} beside the {place}. {name} was {feeling} and thanked {other}.",
    "{day} {name} heard a small voice near the {place}. It was {a_friend} named {other} who could not find the way home. "
    "\"Do not worry,\" said {name}, \"I know the path.\" They walked past the {home} and over the bridge. When they arrived, "
    "{other} gave {name} a {thing} as a gift. {name} felt {feeling} all the way home.",
    "{day} {name} decided to build a boat from a {thing} and some wood. {other} the {friend} laughed at first, but then came to "
    "help. They worked until the moon was high over the {place}. In the morning the boat floated on the water. {name} and "
    "{other} were {feeling} and sailed around the {place}.",
    "{day} there was a big storm over the {place}. {other} the {friend} was afraid, so {name} opened the door and said, \"Come "
    "in.\" They drank warm tea and told stories until the rain stopped. In the morning the sun was shining and the {home} "
    "looked new. {other} was {feeling} to have a friend like {name}.",
    "{day} {name} found a {thing} on the road to the {place}. There was a note that said, \"I belong to {other}.\" {name} walked "
    "a long way and asked everyone for {other}. At last {a_friend} opened a small door and smiled. \"That is my {thing}!\" said "
    "{other}. \"Thank you for being honest.\" {name} was {feeling} and stayed for supper.",
    "{day} {name} and {other} the {friend} had a race to the {place}. {other} was faster, but fell over a root. {name} stopped "
    "and helped {other} up. \"You could have won,\" said {other}. \"I would rather win a friend,\" said {name}. They walked the "
    "rest of the way together and were {feeling}.",
    "{day} {name} wanted to learn a song. {other} the {friend} knew the best song of the whole {place}. \"Listen first, then "
    "sing,\" said {other}. {name} listened until the stars came out. Then {name} sang so well that the {place} became quiet. "
    "{name} was {feeling} and gave {other} a {thing}.",
    "{day} {name} planted a seed in the {place}. It did not grow for many days, and {name} was sad. {other} the {friend} brought "
    "water in a {thing}. \"Good things need time,\" said {other}. In the end a tall flower opened, and {name} was {feeling}.",
]
ENDINGS = [
    "From that day on, {name} and {other} were best friends.",
    "And they lived happily ever after.",
    "That night {name} slept very well.",
    "{name} learned that helping others is the best adventure.",
    "And if you walk past the {place}, you may still hear them laugh.",
]
ASK = ["Tell me a story", "Write a short story", "Tell me a short story", "Write a story", "Can you tell me a story", "Please tell me a story"]


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
