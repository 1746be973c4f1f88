"""Arithmetic: sums, differences, products, comparisons and counting."""

from __future__ import annotations

import re
from random import Random

from .task import Task

SUM_ASK = [
    "What is {a} plus {b}?",
    "How much is {a} + {b}?",
    "Add {a} and {b}.",
    "What is {a} + {b}?",
    "What is the sum of {a} and {b}?",
    "Calculate {a} + {b}.",
]
MINUS_ASK = [
    "What is {a} minus {b}?",
    "How much is {a} - {b}?",
    "What is {a} - {b}?",
    "Subtract {b} from {a}.",
    "Calculate {a} - {b}.",
]
TIMES_ASK = ["What is {a} times {b}?", "How much is {a} * {b}?", "Multiply {a} by {b}."]
LARGER_ASK = ["Which is larger, {a} or {b}?", "Which number is larger: {a} or {b}?"]
COUNT_ASK = [
    "Count from {a} to {b}.",
    "Please count from {a} to {b}.",
    "Count from {a} up to {b}.",
    "Can you count from {a} to {b}?",
]
DOWN_ASK = ["Count down from {a} to {b}.", "Please count down from {a} to {b}."]
STEP_ASK = ["Count by {s} from {a} to {b}.", "Count from {a} to {b} in steps of {s}."]


def _term(rng: Random) -> int:
    """Return a number below 100, small ones more often."""
    return rng.randrange(rng.choice((10, 20, 50, 100, 100)))


def addition(rng: Random) -> Task:
    """Ask for the sum of two numbers; both orders of a pair are held out together."""
    a, b = _term(rng), _term(rng)
    key = f"{min(a, b)}+{max(a, b)}"
    return Task("sum", rng.choice(SUM_ASK).format(a=a, b=b), f"{a} plus {b} is {a + b}.", key)


def subtraction(rng: Random) -> Task:
    """Ask for the difference of two numbers, never below zero."""
    a, b = sorted((_term(rng), _term(rng)), reverse=True)
    return Task("difference", rng.choice(MINUS_ASK).format(a=a, b=b), f"{a} minus {b} is {a - b}.", f"{a}-{b}")


def multiplication(rng: Random) -> Task:
    """Ask for an entry of the table up to ten; a phrasing of it may be held out."""
    a, b, ask = rng.randrange(11), rng.randrange(11), rng.choice(TIMES_ASK)
    return Task("product", ask.format(a=a, b=b), f"{a} times {b} is {a * b}.", f"{a}*{b} {ask}")


def comparison(rng: Random) -> Task:
    """Ask which of two numbers is larger."""
    a = b = rng.randrange(100)
    while a == b:
        b = rng.randrange(100)
    return Task("larger", rng.choice(LARGER_ASK).format(a=a, b=b), f"{max(a, b)} is larger.", f"{a} {b}")


def counting(rng: Random) -> Task:
    """Ask to count up, down or in steps."""
    kind, length = rng.random(), rng.randrange(3, 16)
    if kind < 0.6:
        if rng.random() < 0.1:
            length = rng.randrange(16, 50)
        first = 1 if rng.random() < 0.3 else rng.randrange(0, 90)
        numbers, ask, step = range(first, first + length), rng.choice(COUNT_ASK), 1
    elif kind < 0.8:
        last = rng.randrange(0, 40) if rng.random() < 0.6 else rng.randrange(2)
        numbers, ask, step = range(last + length - 1, last - 1, -1), rng.choice(DOWN_ASK), -1
    else:
        step = rng.choice((2, 3, 5, 10))
        first = rng.randrange(step) if rng.random() < 0.2 else rng.choice((1, step)) * rng.randrange(12)
        numbers, ask = range(first, first + step * min(length, 10), step), rng.choice(STEP_ASK)
    prompt = ask.format(a=numbers[0], b=numbers[-1], s=step)
    return Task("count", prompt, ", ".join(map(str, numbers)) + ".", f"{numbers[0]} {numbers[-1]} {step}")


def line(rng: Random) -> Task:
    """Write a sum or a difference with signs alone; the split is that of the asked ones."""
    task = rng.choice((addition, subtraction))(rng)
    a, sign, b = re.split(r"([+-])", task.key)
    if sign == "+" and rng.random() < 0.5:
        a, b = b, a
    return Task(task.kind, f"{a} {sign} {b} =", str(int(a) + int(sign + b)), task.key)
