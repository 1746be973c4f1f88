"""Words: known names, animals, places and things, and invented words that can only be copied."""

from __future__ import annotations

from random import Random


def words_of(text: str) -> list[str]:
    """Return the words of a text that space parts."""
    return text.split()


NAMES = words_of(
    "Mia Leo Ana Tom Zoe Max Ivy Sam Eva Ben Lily Noah Nora Finn Ruby Jack Emma Oscar Clara Hugo Alice Bob Carol David "
    "Ella Felix Grace Henry Iris Jonas Kira Liam Maya Nina Otto Paula Rosa Simon Tara Victor Anna Lucas Sofia Peter "
    "Maria John Sarah James Laura Paul Julia Mark Helen Karl Lena Omar Priya Wei Yuki Amir Fatima Chen Diego Aisha"
)
ANIMALS = words_of(
    "fox bear rabbit owl mouse turtle cat dog hedgehog squirrel deer frog duck goat bee otter badger robin pony lamb "
    "beaver swan crab whale"
)
PLACES = words_of(
    "forest village garden river hill meadow lake mountain beach farm castle market bridge island library kitchen "
    "harbor tower valley orchard windmill cave"
)
THINGS = words_of(
    "lantern key map kite drum book shell rope basket bell pebble flute blanket compass ribbon cup hat spoon mirror "
    "button coin feather candle boat"
)
ADJECTIVES = words_of("little brave curious kind quiet clever happy sleepy gentle funny old young shy cheerful")
COLORS = words_of("red blue green yellow white black orange purple brown pink gray")
FRUITS = words_of("apple banana cherry grape lemon mango orange peach pear plum")
FOODS = words_of("bread cheese rice soup cake honey butter pasta salad milk tea coffee sugar salt beans corn")
CITIES = words_of(
    "Paris Berlin Rome Madrid Lisbon Tokyo Cairo Nairobi Ottawa Lima Athens Oslo Stockholm Helsinki Warsaw Vienna "
    "Dublin Delhi London Boston Chicago Sydney Toronto Munich Milan Porto Geneva Zurich Prague"
)
JOBS = words_of("teacher doctor baker farmer pilot nurse painter singer sailor cook writer driver gardener builder")

_STARTS = words_of("b br c ch d dr f fl g gr h j k kl l m n p pl r s sh sk sn st t th tr v w z")
_MIDDLES = words_of("a e i o u a e i o u ai ee oo ar er or in an")
_ENDS = ["", "", *words_of("b d f g k l m n p r s sh t th x")]


def invented(rng: Random) -> str:
    """Return a word that means nothing, of one or two syllables."""
    count = rng.choice((1, 2, 2, 2))
    body = "".join(rng.choice(_STARTS) + rng.choice(_MIDDLES) for _ in range(count))
    return body + rng.choice(_ENDS)


def name(rng: Random) -> str:
    """Return a first name, most often an invented one."""
    return rng.choice(NAMES) if rng.random() < 0.35 else invented(rng).capitalize()


def city(rng: Random) -> str:
    """Return the name of a town, most often an invented one."""
    return rng.choice(CITIES) if rng.random() < 0.35 else invented(rng).capitalize()


def noun(rng: Random) -> str:
    """Return a thing in lower case, often an invented one."""
    if rng.random() < 0.5:
        return invented(rng)
    return rng.choice(rng.choice((ANIMALS, THINGS, PLACES, COLORS, FRUITS, FOODS, JOBS)))


def nouns(rng: Random, count: int) -> list[str]:
    """Return `count` different things."""
    found: list[str] = []
    while len(found) < count:
        word = noun(rng)
        if word not in found:
            found.append(word)
    return found


def names(rng: Random, count: int) -> list[str]:
    """Return `count` different names."""
    found: list[str] = []
    while len(found) < count:
        word = name(rng)
        if word not in found:
            found.append(word)
    return found


def number(rng: Random) -> int:
    """Return a whole number of one to three digits, short ones more often."""
    return rng.randrange(10 ** rng.choice((1, 2, 2, 2, 3, 3)))


def article(word: str) -> str:
    """Return `word` behind its indefinite article."""
    return f"an {word}" if word[0] in "aeiou" else f"a {word}"


def series(words: list[str]) -> str:
    """Join words as a sentence does: "a, b and c"."""
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " and " + words[-1]
