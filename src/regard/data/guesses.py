"""The language of a text, by the name of its file or by a guess, and how alike two texts are.

They serve reports, cards and warnings, and servers that are to find out what language a text is in; no text is read in
another way for them. A guess names its grounds: the share of the known frequent words that are of this language
(English, German, French), or the share of letters that are Chinese characters.

A corpus has thousands of words, so a few that no other language has will do. Of a sentence or a greeting all words
count that tell one of the three from the others, and letters that only some languages use (`shares`).
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePath

from regard.data.filters import count_letters
from regard.data.formats import ENDINGS
from regard.data.streams import COMPRESSED

CODES = {"ar", "bg", "ca", "cs", "da", "de", "el", "en", "es", "et", "fi", "fr", "ga", "he", "hi", "hr", "hu", "it",
         "ja", "ko", "lt", "lv", "mt", "nl", "no", "pl", "pt", "ro", "ru", "sk", "sl", "sv", "tr", "uk", "vi",
         "zh"}  # fmt: skip
"""The languages that names of files may end in."""
LAYOUTS = (".txt", ".json", *ENDINGS)
FREQUENT = {
    "en": "the of and to is that it for with you this are have not we be he she they what from my which has by there",
    "de": "der das und ist nicht ich zu den mit sie ein eine auf dem wir für von sich auch wie haben wird dass daß hat "
    "er sind es im bei",
    "fr": "les et est une dans pour qui pas nous vous je il ce sur avec au sont cette elle aux ne mais ou ont leur",
}
"""Frequent words that only one of these languages has, and hardly another."""
LANGUAGE_OF = {word: language for language, words in FREQUENT.items() for word in words.split(" ")}
COMMON = {
    "en": "after afternoon again always any ask at been before better but bye can cheers could day did didn does doesn "
    "don down english evening ever every everything excuse father friend friends get give go going good goodbye got "
    "happy hello here him his home house how i if into isn just know let like ll look love made make many more "
    "morning mother much must need never night nothing now off old one only other our out people please really "
    "right said say should some something sorry speak sure take talk tell than thank thanks their them then think "
    "three time today tomorrow too two up us ve very want way welcome went were when where who why work would wrong "
    "yes yesterday your",
    "de": "abend aber alle alles als arbeit aus besser bin bis bist bitte dank danke dein deine deutsch dich die diese "
    "dieser dieses dir doch drei einem einen einer einfach entschuldigung essen etwas euch frau freund freunde ganz "
    "gehen geht geld gern gerne gestern gibt gut gute guten guter habe hallo hast hatte haus heute hilfe hund hätte "
    "ihm ihn ihnen ihr ihre immer ja jetzt kann kannst kein keine kinder komm kommen kommt können leben leid mann "
    "mehr mein meine mich mir morgen muss mutter möchte nach nacht nein nichts nie niemand noch nur ob oder ohne "
    "sagen schon schule schön sehen sehr sein seine servus tag tschüss tschüß tun uns vater viel vielleicht vor "
    "wann war warum weiß wenn wer werde werden wieder wiedersehen willkommen wirklich wo wollen wurde würde zeit "
    "zum zur zwei über",
    "fr": "adieu aider aime aller ami amis après argent aujourd aussi autre avant avez avoir avons beaucoup besoin "
    "bien bienvenue bon bonjour bonne bonsoir ceci cela ces chez chien chose combien comme demain deux dire dis dit "
    "dois déjà désolé désolée eau elles encore enfants excusez faire fais fait faut femme fois français gens heure "
    "homme hui ici ils jamais jour le lui là ma madame maintenant maison manger merci mes mieux moi mon monsieur "
    "mère même non notre nuit oui où par parce parle parler petit peu peut peux plaît pourquoi pouvez père qu quand "
    "quel quelle quelque quoi revoir rien sa sais salut sans ses soir sommes suis ta temps toi toujours tous tout "
    "toute travail trois trop très va vais veux vie voir vos votre voudrais vraiment à ça école été êtes être",
}
"""Common words beside these that tell each of the three from the two others, though a fourth may have them, too."""
SPECIAL = {
    "ca": "àçèéíïòóúü", "cs": "áčďéěíňóřšťúůýž", "da": "æøå", "de": "äöüß", "es": "áéíñóúü", "et": "äõöüšž",
    "fi": "äöå", "fr": "àâæçèéêëîïôœùûüÿ", "ga": "áéíóú", "hr": "čćđšž", "hu": "áéíóöőúüű", "it": "àèéìîòóùú",
    "lt": "ąčęėįšųūž", "lv": "āčēģīķļņšūž", "mt": "ċġħżàèìòù", "nl": "éèëïóöü", "no": "æøåéòô", "pl": "ąćęłńóśźż",
    "pt": "áâãàçéêíóôõú", "ro": "ăâîșțşţ", "sk": "áäčďéíĺľňóôŕšťúýž", "sl": "čšž", "sv": "åäöé", "tr": "çğıöşüâî",
}  # fmt: skip
"""The letters beyond a to z of languages that have a few of them."""
ANY_SPECIAL = frozenset("".join(SPECIAL.values()))
SPEAKS_FOR = LANGUAGE_OF | {word: language for language, words in COMMON.items() for word in words.split(" ")}
# In corpora of talks, captions, software and short sentences the frequent ones are 15 to 33 % of all words.
LEAST_FREQUENT = 0.08
LEAST_HITS = 10
SURE = 0.8


@dataclass(frozen=True)
class Guess:
    """A language, and how sure it is, from 0 to 1."""

    language: str
    confidence: float

    @property
    def sure(self) -> bool:
        """Whether a warning may rest on it."""
        return self.confidence >= SURE


def language_of(file: Path) -> str | None:
    """The language that a file's name ends in, as in test.de or test.zh.gz; None where it says nothing."""
    code = ending(file)
    return code if code in CODES else None


def ending(file: PurePath) -> str:
    """What a name ends in, in small letters, apart from how the file is packed and laid out: `en` of a.EN.tsv.gz."""
    endings = [suffix.lower() for suffix in file.suffixes]
    while endings and endings[-1] in (*COMPRESSED, *LAYOUTS):
        endings.pop()
    return endings[-1].removeprefix(".") if endings else ""


def guess_language(texts: Iterable[str]) -> Guess | None:
    """English, German, French or Chinese; None where the texts look like none of them, or are too few."""
    text = " ".join(texts).lower()
    letters = count_letters([text])
    # A Chinese character says about as much as three letters, and a Chinese text has few of the latter.
    chinese = 3 * letters.get("Han", 0) / max(sum(letters.values()) + 2 * letters.get("Han", 0), 1)
    if chinese > 0.5 and letters["Han"] >= LEAST_HITS:
        return Guess("zh", round(chinese, 3))
    words = re.findall(r"[^\W\d_]+", text)
    hits = Counter(LANGUAGE_OF[word] for word in words if word in LANGUAGE_OF)
    if hits.total() < max(LEAST_HITS, LEAST_FREQUENT * len(words)):
        return None
    language, count = hits.most_common(1)[0]
    return Guess(language, round(count / hits.total(), 3))


def shares(text: str) -> dict[str, float]:
    """For each language that a text's words speak for, the share of those that do.

    A word more is counted that speaks for none: with one word, nobody is as sure as with many.
    """
    words = re.findall(r"[^\W\d_]+", unicodedata.normalize("NFC", text).lower())
    found = Counter(language for word in words for language in _speaks_for(word))
    return {language: count / (len(words) + 1) for language, count in found.items()}


def _speaks_for(word: str) -> list[str]:
    """The language that lists a word, or else those that have all its special letters."""
    if word in SPEAKS_FOR:
        return [SPEAKS_FOR[word]]
    special = ANY_SPECIAL.intersection(word)
    return [language for language, letters in SPECIAL.items() if special.issubset(letters)] if special else []


def trigrams(texts: Iterable[str]) -> Counter[str]:
    """How often each three characters in a row occur; a space stands at either end of a text."""
    found: Counter[str] = Counter()
    for text in texts:
        padded = f" {text.lower()} "
        found.update(map("".join, zip(padded, padded[1:], padded[2:], strict=False)))
    return found


def cosine(one: Counter[str], other: Counter[str]) -> float:
    """How alike two counts are, from 0 to 1."""
    norm = math.sqrt(sum(n * n for n in one.values()) * sum(n * n for n in other.values()))
    return sum(count * other[gram] for gram, count in one.items()) / norm if norm else 0.0
