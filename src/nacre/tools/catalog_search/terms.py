"""Splits texts and queries into stemmed terms, and finds synonyms.

Text in scripts without spaces between words is split into pairs of characters. The synonyms contain
no names of products or companies.
"""

from __future__ import annotations

import re
import sys
import threading
import unicodedata
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Final, Protocol, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


_MAX_TERM_CHARACTERS: Final = 40
_MAX_KNOWN_WORDS: Final = 50_000
_STEMMER_PACKAGE: Final = "nacre.tools.catalog_search._snowball"

# Words that say nothing about the purpose of a tool.
_STOP_WORD_LIST: Final = """
a about above after again all also am an and any are as at be because been before being between
both but by can could did do does doing during each either else ever few for from further had has
have having he her here hers him his how however i if in into is it its itself just let like may
me might mine more most must my myself need no nor not now of off on once only or other our ours
out over own per please same shall she should so some such than that the their theirs them then
there these they this those through thus to too under until up upon us use used uses using very
via want was we were what when where whether which while who whom whose why will with within
without would yes you your yours
"""
_STOP_WORDS: Final = frozenset(_STOP_WORD_LIST.split())

# Endings that the stemmer leaves on words with the same root: translator and translate, analysis
# and analyze. The first matching ending is removed.
_ENDINGS: Final = (
    *("ysi", "yst", "yz", "ist", "iti", "ment", "or", "er", "ion", "ic", "al"),
    *("ant", "ent", "anc", "enc", "ifi", "ativ", "at"),
)
_MIN_ROOT_CHARACTERS: Final = 4

_WORD: Final = re.compile(r"[A-Za-z0-9\u0080-\U0010ffff]+")
_SHORT_FORM: Final = re.compile(r"['\u2019](?:s|t|d|m|ll|re|ve)\b", re.IGNORECASE)
_PART: Final = re.compile(r"[A-Z]{2,}s(?![a-z])|[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_ACCENTS: Final = re.compile(r"[\u0300-\u036f]+")
# Thai, Lao, Burmese, Khmer; Japanese, Chinese and Korean.
_UNSPACED: Final = re.compile(
    r"([\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
    r"\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff]+)"
)


class _Stemmer(Protocol):
    def stemWord(self, word: str) -> str: ...


# A cache: the terms of a word, and the number of words in it.
_known_words: dict[str, tuple[tuple[str, ...], int]] = {}
# Stemmers have state and are not thread-safe, and an index may be built in a thread.
_of_thread = threading.local()


def terms_of(text: str) -> list[str]:
    """The terms of a text, in order and with repetitions."""
    return terms_and_length_of(text)[0]


def terms_and_length_of(text: str) -> tuple[list[str], int]:
    """The terms and the number of words: `readFile` has three terms, but two words."""
    terms: list[str] = []
    length = 0
    for word in _WORD.findall(_plain(text)):
        of_word, word_count = _known_words.get(word) or _learn_word(word)
        terms.extend(of_word)
        length += word_count
    return terms, length


def _plain(text: str) -> str:
    """Remove accents and endings such as `'s`."""
    if not text.isascii():
        decomposed = unicodedata.normalize("NFKD", text)
        text = unicodedata.normalize("NFC", _ACCENTS.sub("", decomposed))
    return _SHORT_FORM.sub("", text) if "'" in text or "\u2019" in text else text


def _learn_word(word: str) -> tuple[tuple[str, ...], int]:
    is_ascii = word.isascii()
    terms = tuple(_terms_of_ascii(word) if is_ascii else _terms_of_any_script(word))
    known = terms, _length_of_ascii(terms) if is_ascii else len(terms)
    # The cache is limited, because texts may contain any number of words of any length.
    if len(word) <= _MAX_TERM_CHARACTERS:
        if len(_known_words) >= _MAX_KNOWN_WORDS:
            _known_words.clear()
        _known_words[word] = known
    return known


def _length_of_ascii(terms: tuple[str, ...]) -> int:
    # With several terms, the last one is the whole word, so it is not counted.
    return max(len(terms) - 1, 1) if terms else 0


def _terms_of_ascii(word: str) -> Iterator[str]:
    parts = _PART.findall(word)
    if len(parts) > 1:
        yield from (term for part in parts if len(part) > 1 for term in _stem(part))
    # The whole word too: `github` should find `GitHub`, and `s3` is more than `s` and `3`.
    yield from _stem(word)


def _terms_of_any_script(word: str) -> Iterator[str]:
    letters = "".join(c if unicodedata.category(c)[0] in "LMN" else " " for c in word)
    for run in letters.split():
        for piece in _UNSPACED.split(run):
            if _UNSPACED.fullmatch(piece):
                yield from map("".join, zip(piece, piece[1:] or [""], strict=False))
            elif piece.isascii():
                yield from _terms_of_ascii(piece)
            else:
                yield from _stem(piece)


def _stem(word: str) -> tuple[str, ...]:
    """The root of the word; empty for a stop word."""
    folded = word.casefold()[:_MAX_TERM_CHARACTERS]
    if not folded or folded in _STOP_WORDS:
        return ()
    return (_root(_stemmer().stemWord(folded)),)


def _root(stem: str) -> str:
    for ending in _ENDINGS:
        if stem.endswith(ending) and len(stem) - len(ending) >= _MIN_ROOT_CHARACTERS:
            root = stem.removesuffix(ending)
            return f"{root}y" if ending[0] == "y" else root
    return stem


def _stemmer() -> _Stemmer:
    stemmer: _Stemmer | None = getattr(_of_thread, "stemmer", None)
    if stemmer is None:
        stemmer = _of_thread.stemmer = _stemmer_class()()
    return stemmer


@cache
def _stemmer_class() -> Callable[[], _Stemmer]:
    """The English stemmer, loaded at the first search.

    Its package imports the stemmers of all languages, which would take 5 MB and most of the time
    of a first search. So the module is loaded into an empty package with the same path.
    """
    spec = find_spec("snowballstemmer")
    if spec is None or spec.submodule_search_locations is None:
        raise ImportError("snowballstemmer is not installed", name="snowballstemmer")
    package = ModuleType(_STEMMER_PACKAGE)
    package.__path__ = spec.submodule_search_locations
    # Another thread may be here too; both use one package.
    sys.modules.setdefault(_STEMMER_PACKAGE, package)
    module = import_module(f"{_STEMMER_PACKAGE}.english_stemmer")
    return cast("Callable[[], _Stemmer]", module.EnglishStemmer)


# One group of synonyms per line; a word may be in several groups.
_WHAT_TOOLS_DO: Final = """
begin start launch
calculate compute
cancel stop terminate abort
choose pick select
clone copy duplicate
combine join merge
compare diff
compress zip archive
convert transform
correct fix repair
create make build
delete remove erase
discover explore
display show view
download fetch
draw sketch
edit modify update change
execute run
fetch obtain retrieve
listen hear
measure quantify
predict forecast
reserve book
save store
send deliver
share publish
shorten summarize
speak say talk
suggest recommend advise
track monitor watch
translate interpret
validate verify check
"""
_WHAT_TOOLS_HANDLE: Final = """
advertisement ad
answer reply response
apartment house home property
appointment meeting event
article paper publication
audio sound voice speech
author writer
bug defect error issue
car vehicle automobile
chat conversation talk
city town
client customer
clip video
clothes fashion
company business firm
cost price fee
country nation
currency money
directory folder
disease illness
doctor physician
email mail
exam test quiz
film movie
flight airline
food meal dish recipe
game play
graph chart plot
health medical
history log
hotel accommodation
image photo picture
income salary wage
job career employment
journey trip travel
law legal
link url
location place
logo icon
map navigation
medicine drug
message text
news headline
note memo
password credential
person people
phone telephone mobile
reminder alarm
remote distant
restaurant dining
route directions
school university college
script program code
slide presentation
song music
spreadsheet excel
stock share equity
student pupil
task todo
"""
_SHORT_FORMS: Final = """
addr address
admin administrator
app application
auth authentication login
avg average
calc calculate
config configuration setting
db database
desc description
dev developer
dir directory
doc document
docs documentation
env environment
img image
info information
lang language
lat latitude
lib library
lng longitude
math mathematics
max maximum
min minimum
msg message
num number
org organization
param parameter
pic picture
qty quantity
repo repository
temp temperature
tz timezone
wiki encyclopedia
"""


_READING_VERBS: Final = """
browse check count describe fetch find get history list log lookup query read return search show
status view
"""


def is_reading_verb(term: str) -> bool:
    """Whether the term is of a verb that tools use for reading."""
    return term in _reading_terms()


@cache
def _reading_terms() -> frozenset[str]:
    return frozenset(terms_of(_READING_VERBS))


def synonyms_of(term: str) -> tuple[str, ...]:
    """The synonyms of a term, in the order of the groups."""
    return _synonyms().get(term, ())


@cache
def _synonyms() -> Mapping[str, tuple[str, ...]]:
    # Computed at the first search, because it needs the stemmer.
    groups: dict[str, dict[str, None]] = {}
    for line in f"{_WHAT_TOOLS_DO}{_WHAT_TOOLS_HANDLE}{_SHORT_FORMS}".split("\n"):
        group = terms_of(line)
        for term in group:
            groups.setdefault(term, {}).update(dict.fromkeys(group))
    return {
        term: tuple(other for other in others if other != term) for term, others in groups.items()
    }
