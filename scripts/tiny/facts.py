"""Facts: relations between things, each asked in several phrasings and answered in one sentence."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from .task import Task


@dataclass(frozen=True, slots=True)
class Relation:
    """Pairs that one sentence joins; `asks` are the phrasings of the question."""

    sentence: str
    asks: tuple[str, ...]
    pairs: dict[str, str]

    def statement(self, subject: str) -> tuple[str, str]:
        """Return the sentence about `subject`, cut before the part that is the answer."""
        start, _, end = self.sentence.partition("{y}")
        start, end = start.format(x=subject).rstrip(), self.pairs[subject] + end.format(x=subject)
        return start[:1].upper() + start[1:], " " + end if start else end


def _table(text: str) -> dict[str, str]:
    """Read "subject=value; subject=value"."""
    return {key.strip(): value.strip() for key, value in (entry.split("=") for entry in text.split(";"))}


CAPITALS = _table(
    "France=Paris; Germany=Berlin; Italy=Rome; Spain=Madrid; Portugal=Lisbon; Japan=Tokyo; China=Beijing; India=New Delhi; Egypt=Cairo;"
    "Kenya=Nairobi; Brazil=Brasilia; Canada=Ottawa; Mexico=Mexico City; Peru=Lima; Chile=Santiago; Greece=Athens; Norway=Oslo;"
    "Sweden=Stockholm; Finland=Helsinki; Denmark=Copenhagen; Poland=Warsaw; Austria=Vienna; Hungary=Budapest; Ireland=Dublin;"
    "Turkey=Ankara; Vietnam=Hanoi; Thailand=Bangkok; Cuba=Havana; Iceland=Reykjavik; Switzerland=Bern; Belgium=Brussels;"
    "the Netherlands=Amsterdam; Russia=Moscow; Ukraine=Kyiv; Romania=Bucharest; Bulgaria=Sofia; Serbia=Belgrade; Croatia=Zagreb;"
    "Australia=Canberra; New Zealand=Wellington; Argentina=Buenos Aires; Colombia=Bogota; South Korea=Seoul; Nepal=Kathmandu;"
    "Morocco=Rabat; Ghana=Accra; Nigeria=Abuja; Ethiopia=Addis Ababa; Iran=Tehran; Iraq=Baghdad; England=London; Scotland=Edinburgh;"
    "the United States=Washington; Indonesia=Jakarta; Mongolia=Ulaanbaatar; Estonia=Tallinn; Latvia=Riga; Lithuania=Vilnius"
)
LANGUAGES = _table(
    "France=French; Germany=German; Italy=Italian; Spain=Spanish; Portugal=Portuguese; Japan=Japanese; China=Chinese; Greece=Greek;"
    "Norway=Norwegian; Sweden=Swedish; Finland=Finnish; Denmark=Danish; Poland=Polish; Austria=German; Hungary=Hungarian; Brazil=Portuguese;"
    "Mexico=Spanish; England=English; Russia=Russian; Turkey=Turkish; Vietnam=Vietnamese; Thailand=Thai; Australia=English; Egypt=Arabic"
)
COLORS = _table(
    "the sky=blue; grass=green; snow=white; a banana=yellow; a tomato=red; coal=black; an orange=orange; a carrot=orange; the sun=yellow;"
    "a strawberry=red; an elephant=gray; milk=white; blood=red; chocolate=brown; a lime=green; a raven=black; a flamingo=pink; the sea=blue;"
    "a lemon=yellow; an eggplant=purple; salt=white; a frog=green"
)
SOUNDS = _table(
    "dog=barks; cat=meows; cow=moos; duck=quacks; lion=roars; bee=buzzes; owl=hoots; frog=croaks; horse=neighs; sheep=bleats; wolf=howls;"
    "snake=hisses; pig=grunts; mouse=squeaks; rooster=crows; donkey=brays"
)
LEGS = _table("spider=eight; dog=four; bird=two; ant=six; cat=four; snake=no; horse=four; duck=two; bee=six; frog=four; cow=four; human=two; fish=no; crab=ten")
YOUNG = _table("dog=puppy; cat=kitten; cow=calf; horse=foal; sheep=lamb; pig=piglet; duck=duckling; bear=cub; lion=cub; goat=kid; frog=tadpole; deer=fawn; hen=chick; swan=cygnet; goose=gosling; kangaroo=joey")
HOMES = _table("bee=a hive; bird=a nest; fox=a den; rabbit=a burrow; spider=a web; horse=a stable; dog=a kennel; cow=a barn; bear=a cave; fish=the water; beaver=a lodge; pig=a sty")
FOOD = _table("cow=grass; rabbit=carrots; bee=nectar; panda=bamboo; cat=fish; mouse=cheese; owl=mice; squirrel=nuts; frog=flies; bear=honey; monkey=bananas; horse=hay; bird=seeds; koala=leaves")
OPPOSITES = _table(
    "hot=cold; cold=hot; big=small; small=big; up=down; down=up; fast=slow; slow=fast; day=night; night=day; happy=sad; sad=happy; open=closed;"
    "full=empty; empty=full; old=new; light=dark; dark=light; high=low; low=high; left=right; right=left; soft=hard; hard=soft; wet=dry;"
    "dry=wet; strong=weak; weak=strong; early=late; late=early; black=white; white=black; rich=poor; true=false; false=true; in=out; long=short;"
    "short=long; near=far; far=near; loud=quiet; young=old; good=bad; bad=good; first=last; last=first; clean=dirty; dirty=clean"
)
PLURALS = _table("mouse=mice; child=children; foot=feet; tooth=teeth; goose=geese; man=men; woman=women; sheep=sheep; leaf=leaves; knife=knives; cat=cats; dog=dogs; fox=foxes; box=boxes; baby=babies; city=cities")
PASTS = _table("go=went; see=saw; eat=ate; run=ran; sing=sang; write=wrote; take=took; come=came; give=gave; find=found; think=thought; buy=bought; make=made; know=knew; begin=began; swim=swam; fly=flew; speak=spoke")
AFTER_DAY = _table("Monday=Tuesday; Tuesday=Wednesday; Wednesday=Thursday; Thursday=Friday; Friday=Saturday; Saturday=Sunday; Sunday=Monday")
AFTER_MONTH = _table("January=February; February=March; March=April; April=May; May=June; June=July; July=August; August=September; September=October; October=November; November=December; December=January")
FRENCH = _table("cat=chat; dog=chien; house=maison; water=eau; bread=pain; sun=soleil; moon=lune; book=livre; tree=arbre; day=jour; night=nuit; hello=bonjour; thank you=merci; red=rouge; white=blanc; king=roi")
SPANISH = _table("cat=gato; dog=perro; house=casa; water=agua; bread=pan; sun=sol; moon=luna; book=libro; tree=arbol; day=dia; night=noche; hello=hola; thank you=gracias; red=rojo; white=blanco; king=rey")
GERMAN = _table("cat=Katze; dog=Hund; house=Haus; water=Wasser; bread=Brot; sun=Sonne; moon=Mond; book=Buch; tree=Baum; day=Tag; night=Nacht; hello=hallo; thank you=danke; red=rot; white=weiss; king=Koenig")
SYMBOLS = _table("gold=Au; silver=Ag; iron=Fe; oxygen=O; hydrogen=H; carbon=C; helium=He; nitrogen=N; sodium=Na; copper=Cu; lead=Pb; tin=Sn; zinc=Zn; calcium=Ca; neon=Ne; mercury=Hg")
SIDES = _table("triangle=three; square=four; rectangle=four; pentagon=five; hexagon=six; heptagon=seven; octagon=eight; circle=no")
UNITS = _table("minutes in an hour=60; hours in a day=24; days in a week=7; months in a year=12; seconds in a minute=60; days in a year=365; weeks in a year=52; years in a century=100; years in a decade=10; meters in a kilometer=1000; grams in a kilogram=1000; centimeters in a meter=100; cents in a dollar=100; letters in the alphabet=26; bits in a byte=8; planets in the solar system=8")
AUTHORS = _table("Hamlet=William Shakespeare; Don Quixote=Miguel de Cervantes; Faust=Goethe; Emma=Jane Austen; War and Peace=Leo Tolstoy; Oliver Twist=Charles Dickens; Dracula=Bram Stoker; Frankenstein=Mary Shelley; The Odyssey=Homer; Moby Dick=Herman Melville; Les Miserables=Victor Hugo; Macbeth=William Shakespeare")
MATERIALS = _table("window=glass; book=paper; table=wood; ring=gold; sweater=wool; shoe=leather; nail=iron; tire=rubber; candle=wax; house=brick; bottle=glass; pencil=wood")
RIVERS = _table("Paris=Seine; London=Thames; Rome=Tiber; Vienna=Danube; Cairo=Nile; Budapest=Danube; Cologne=Rhine; Prague=Vltava; Lisbon=Tagus; New York=Hudson")
NUMBERS = dict(enumerate("zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen twenty".split()))

RELATIONS: dict[str, Relation] = {
    "capital": Relation("the capital of {x} is {y}.", ("What is the capital of {x}?", "Which city is the capital of {x}?", "Tell me the capital of {x}.", "Name the capital city of {x}.", "What city is the capital of {x}?", "Do you know the capital of {x}?", "The capital of {x}, please.", "I forgot the capital of {x}. What is it?"), CAPITALS),
    "language": Relation("in {x} people speak {y}.", ("What language do people speak in {x}?", "Which language is spoken in {x}?", "Tell me the language of {x}.", "What do people speak in {x}?"), LANGUAGES),
    "color": Relation("{x} is {y}.", ("What color is {x}?", "Which color is {x}?", "Tell me the color of {x}.", "What is the color of {x}?"), COLORS),
    "sound": Relation("a {x} {y}.", ("What sound does a {x} make?", "How does a {x} sound?", "Tell me the sound of a {x}.", "Which sound does a {x} make?"), SOUNDS),
    "legs": Relation("a {x} has {y} legs.", ("How many legs does a {x} have?", "Count the legs of a {x}.", "A {x} has how many legs?", "Tell me how many legs a {x} has."), LEGS),
    "young": Relation("a young {x} is called a {y}.", ("What is a young {x} called?", "What do you call a young {x}?", "What is the name of a baby {x}?", "Tell me the word for a young {x}."), YOUNG),
    "home": Relation("a {x} lives in {y}.", ("Where does a {x} live?", "What is the home of a {x}?", "Tell me where a {x} lives.", "In what does a {x} live?"), HOMES),
    "food": Relation("a {x} likes to eat {y}.", ("What does a {x} eat?", "What does a {x} like to eat?", "Tell me what a {x} eats.", "What is the food of a {x}?"), FOOD),
    "opposite": Relation("the opposite of {x} is {y}.", ("What is the opposite of {x}?", "Give me the opposite of {x}.", "Which word is the opposite of {x}?", "Tell me the opposite of {x}."), OPPOSITES),
    "plural": Relation("the plural of {x} is {y}.", ("What is the plural of {x}?", "Give me the plural of {x}.", "Tell me the plural of {x}.", "One {x}, two what?"), PLURALS),
    "past": Relation("the past tense of {x} is {y}.", ("What is the past tense of {x}?", "Give me the past tense of {x}.", "Tell me the past tense of {x}.", "Put {x} into the past tense."), PASTS),
    "next day": Relation("{y} comes after {x}.", ("What day comes after {x}?", "Which day comes after {x}?", "Tell me the day after {x}.", "What is the day after {x}?"), AFTER_DAY),
    "next month": Relation("{y} comes after {x}.", ("What month comes after {x}?", "Which month comes after {x}?", "Tell me the month after {x}.", "What is the month after {x}?"), AFTER_MONTH),
    "french": Relation("{x} in French is {y}.", ("What is {x} in French?", "How do you say {x} in French?", "Translate {x} into French.", "Say {x} in French."), FRENCH),
    "spanish": Relation("{x} in Spanish is {y}.", ("What is {x} in Spanish?", "How do you say {x} in Spanish?", "Translate {x} into Spanish.", "Say {x} in Spanish."), SPANISH),
    "german": Relation("{x} in German is {y}.", ("What is {x} in German?", "How do you say {x} in German?", "Translate {x} into German.", "Say {x} in German."), GERMAN),
    "symbol": Relation("the chemical symbol of {x} is {y}.", ("What is the chemical symbol of {x}?", "Tell me the chemical symbol of {x}.", "Give me the symbol for {x}.", "Which symbol does {x} have?"), SYMBOLS),
    "sides": Relation("a {x} has {y} sides.", ("How many sides does a {x} have?", "Count the sides of a {x}.", "Tell me how many sides a {x} has.", "A {x} has how many sides?"), SIDES),
    "unit": Relation("there are {y} {x}.", ("How many {x}?", "How many {x} are there?", "Tell me the number of {x}.", "What is the number of {x}?"), UNITS),
    "author": Relation("{x} was written by {y}.", ("Who wrote {x}?", "Who is the author of {x}?", "Tell me who wrote {x}.", "Name the author of {x}."), AUTHORS),
    "material": Relation("a {x} is made of {y}.", ("What is a {x} made of?", "Tell me what a {x} is made of.", "Of what is a {x} made?", "Which material is a {x} made of?"), MATERIALS),
    "river": Relation("the river in {x} is the {y}.", ("Which river flows through {x}?", "What is the river in {x}?", "Tell me the river of {x}.", "Name the river in {x}."), RIVERS),
    "word": Relation("{x} as a word is {y}.", ("Write {x} as a word.", "What is {x} as a word?", "Spell the number {x}.", "How do you write {x} as a word?"), {str(k): v for k, v in NUMBERS.items()}),
}
_ALL = [(relation, subject) for relation in RELATIONS.values() for subject in relation.pairs]


def fact(rng: Random) -> Task:
    """Ask for a known fact; the split holds out single phrasings of it."""
    relation, subject = rng.choice(_ALL)
    ask = rng.choice(relation.asks)
    start, end = relation.statement(subject)
    return Task("fact", ask.format(x=subject), start + end, f"{subject} {ask}")


def statement(rng: Random) -> tuple[str, str]:
    """Return a fact as a plain sentence, cut before its answer."""
    while True:
        relation, subject = rng.choice(_ALL)
        if not relation.sentence.startswith("{y}"):
            return relation.statement(subject)
