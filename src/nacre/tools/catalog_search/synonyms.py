"""Words that mean about the same where tools are concerned: plain English and usual short forms.

Names of products and makers are not among them: catalogs come and go.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

from nacre.tools.catalog_search.terms import terms_of

if TYPE_CHECKING:
    from collections.abc import Mapping

# One group per line; a word may stand in several, and means all of them.
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


def synonyms_of(term: str) -> tuple[str, ...]:
    """The terms that stand in a group with this one, in the order of the groups."""
    return _synonyms().get(term, ())


@cache
def _synonyms() -> Mapping[str, tuple[str, ...]]:
    """Made at the first search: it needs the stemmer."""
    found: dict[str, dict[str, None]] = {}
    for line in f"{_WHAT_TOOLS_DO}{_WHAT_TOOLS_HANDLE}{_SHORT_FORMS}".split("\n"):
        group = terms_of(line)
        for term in group:
            found.setdefault(term, {}).update(dict.fromkeys(group))
    return {
        term: tuple(other for other in others if other != term) for term, others in found.items()
    }
