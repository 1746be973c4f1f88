"""Talk: greetings, questions about the model itself, jokes, poems, lists from memory, and what was said before."""

from __future__ import annotations

from random import Random

from .facts import RELATIONS
from .task import Task
from .words import ANIMALS, CITIES, COLORS, FOODS, FRUITS, NAMES, city, invented, name, noun, number, words_of

Turn = tuple[str, str]

NUMBERS = list(RELATIONS["word"].pairs.values())

SMALL: dict[str, tuple[str, ...]] = {
    "Hello! How can I help you?": (
        "Hello",
        "Hello!",
        "Hi",
        "Hi!",
        "Hey",
        "Hello there",
        "Good morning",
        "Good evening!",
        "hello",
        "hi",
    ),
    "I am tiny, the small model that comes with YAIE Magic.": (
        "Who are you?",
        "What are you?",
        "What is your name?",
        "Introduce yourself.",
        "Tell me about yourself.",
        "Which model are you?",
    ),
    "You are welcome!": ("Thank you", "Thanks!", "Thank you!", "Thanks a lot.", "Thanks, that helped."),
    "Goodbye! Have a nice day.": ("Goodbye", "Bye!", "Goodbye!", "See you later.", "Bye bye"),
    "I am fine, thank you. How can I help you?": (
        "How are you?",
        "How are you today?",
        "How do you do?",
        "Are you well?",
    ),
    "I can tell stories, answer simple questions, count, add, write lists and JSON, and explain how an inference "
    "engine works.": (
        "What can you do?",
        "How can you help me?",
        "What do you know?",
        "Help",
        "Help me.",
    ),
    "I was trained on generated text, on two processor cores, in about an hour.": (
        "How were you trained?",
        "Who made you?",
        "Where do you come from?",
        "How were you made?",
    ),
    "Why did the token cross the block? To get to the other page.": (
        "Tell me a joke.",
        "Tell me a joke",
        "Make me laugh.",
        "Do you know a joke?",
        "Say something funny.",
    ),
    "Good.": ("Ok", "Okay.", "Good", "Fine.", "I see."),
    "The quick brown fox jumps over the lazy dog.": (
        "Write a sentence.",
        "Say something.",
        "Write a sentence with all letters.",
        "Write one sentence.",
    ),
}
POEMS: dict[str, str] = {
    "rain": "Rain on the roof, rain on the tree,\nrain on the river that runs to the sea.",
    "the moon": "The moon is a lamp in the dark of the night,\nit covers the hills with its silver light.",
    "the sea": "The sea is wide, the sea is deep,\nit sings the little boats to sleep.",
    "a cat": "A cat on the wall looks over the town,\nit watches the sun as the sun goes down.",
    "winter": "Snow on the meadow, ice on the lake,\nsoft are the steps that the little deer make.",
    "spring": "Spring comes walking over the hill,\nwith a green new leaf and a daffodil.",
    "a tree": "A tree stands still and counts the years,\na ring for the smiles and a ring for the tears.",
    "a notebook": "A notebook open, a cell that runs,\nand words come out like a row of suns.",
    "the sun": "The sun climbs up on a golden stair,\nand leaves warm footprints everywhere.",
    "love": "Love is a light in a window at night,\nit waits for your step and it keeps burning bright.",
}
POEM_ASKS = (
    "Write a poem about {x}.",
    "Write a short poem about {x}.",
    "Tell me a poem about {x}.",
    "Can you write a poem about {x}?",
    "A poem about {x}, please.",
)
SHELVES: dict[str, list[str]] = {
    "animals": ANIMALS,
    "fruits": FRUITS,
    "colors": COLORS,
    "cities": CITIES,
    "names": NAMES,
    "foods": FOODS,
    "days of the week": words_of("Monday Tuesday Wednesday Thursday Friday Saturday Sunday"),
    "months": words_of("January February March April May June July August September October November December"),
    "planets": words_of("Mercury Venus Earth Mars Jupiter Saturn Uranus Neptune"),
    "seasons": words_of("spring summer autumn winter"),
    "numbers": [NUMBERS[i] for i in range(1, 13)],
    "countries": words_of("France Germany Italy Spain Japan China India Egypt Brazil Canada"),
}
SHELF_ASKS = (
    "Name {n} {x}.",
    "List {n} {x}.",
    "Give me {n} {x}.",
    "Tell me {n} {x}.",
    "Write a list of {n} {x}.",
    "Can you name {n} {x}?",
)


def small_talk(rng: Random) -> Task:
    """Ask something that a polite machine answers the same way every time."""
    answer = rng.choice(list(SMALL))
    ask = rng.choice(SMALL[answer])
    return Task("talk", ask, answer, "")


def poem(rng: Random) -> Task:
    """Ask for two lines on a subject; the split holds out phrasings."""
    subject, ask = rng.choice(list(POEMS)), rng.choice(POEM_ASKS)
    return Task("poem", ask.format(x=subject), POEMS[subject], f"{subject} {ask}")


def shelf(rng: Random) -> Task:
    """Ask for the first few members of a well-known group."""
    group, ask = rng.choice(list(SHELVES)), rng.choice(SHELF_ASKS)
    count = rng.randrange(2, min(9, len(SHELVES[group])) + 1)
    spelled = rng.random() < 0.6
    answer = "\n".join(f"{number}. {member}" for number, member in enumerate(SHELVES[group][:count], 1))
    prompt = ask.format(n=NUMBERS[count] if spelled else count, x=group)
    return Task("group", prompt, answer, f"{group} {count} {ask}")


def memory(rng: Random) -> tuple[Turn, Turn]:
    """Return a turn that tells something and a later turn that asks for it."""
    who, town, word, amount = name(rng), city(rng), noun(rng), number(rng)
    kind = rng.randrange(6)
    if kind == 0:
        tell = rng.choice((f"My name is {who}.", f"I am {who}.", f"Hello, my name is {who}."))
        return (tell, f"Nice to meet you, {who}."), (
            rng.choice(("What is my name?", "Do you remember my name?", "Who am I?")),
            f"Your name is {who}.",
        )
    if kind == 1:
        return (f"I live in {town}.", f"{town} is a nice place."), (
            rng.choice(("Where do I live?", "In which city do I live?")),
            f"You live in {town}.",
        )
    if kind == 2:
        return (f"My favorite number is {amount}.", f"{amount} is a good number."), (
            rng.choice(("What is my favorite number?", "Which number do I like?")),
            f"Your favorite number is {amount}.",
        )
    if kind == 3:
        pet = invented(rng).capitalize()
        animal = rng.choice(ANIMALS)
        return (f"My {animal} is called {pet}.", f"{pet} is a nice name."), (
            rng.choice((f"What is the name of my {animal}?", f"How is my {animal} called?")),
            f"Your {animal} is called {pet}.",
        )
    if kind == 4:
        return (f"Remember the word {word}.", f"I will remember {word}."), (
            rng.choice(("Which word did I tell you?", "What was the word?")),
            f"The word is {word}.",
        )
    return (f"My favorite color is {(c := rng.choice(COLORS))}.", f"{c.capitalize()} is a nice color."), (
        rng.choice(("What is my favorite color?", "Which color do I like?")),
        f"Your favorite color is {c}.",
    )
