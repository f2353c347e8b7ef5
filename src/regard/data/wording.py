"""Numbers, dates and times as people write them, in English, German, French and Chinese.

The words for numbers come from num2words; the names of months and days and the formats come from CLDR,
through Babel. Where these are wrong or silent, the house rules are:

- English is American: no "and" and no comma within a number in words, the month before the day.
- Chinese numerals are made here, because num2words has none. Two is always 二, never 两, which is correct in
  writing and keeps one word for one digit: 10,205 is 一万零二百零五.
- Mended: German "einhunderteinstausend" is "einhunderteintausend"; French "quatre-vingtsième" is
  "quatre-vingtième", "1 mars" is "1er mars", and a year takes no plural s ("mille neuf cent").
- French clock times are 15 h 04, as in print; CLDR has 15:04. A currency code keeps a space: CHF 50.
- The no-break spaces of CLDR become plain spaces.
"""

import datetime
import re
from decimal import Decimal
from functools import cache
from typing import Literal

# num2words and Babel are imported where they are used: that takes a third of a second, too long for settings.

Language = Literal["en", "de", "fr", "zh"]


def words(language: Language, number: int) -> str:
    """A cardinal number from 0 to 999,999 in words, as it is counted or read aloud."""
    if language == "zh":
        return _chinese(number)
    thousands, rest = divmod(number, 1000)
    tail = _below_thousand(language, rest) if rest or not thousands else ""
    if not thousands:
        return tail
    # The thousands are joined here: a thousand pieces are quick to keep, and num2words gets one joint wrong.
    head = _below_thousand(language, thousands)
    match language:
        case "en":
            return f"{head} thousand {tail}".rstrip()
        case "de":
            return re.sub("eins$", "ein", head) + "tausend" + tail
        case "fr":
            return f"{'' if thousands == 1 else _no_plural(head)} mille {tail}".strip()


@cache
def _below_thousand(language: Language, number: int) -> str:
    from num2words import num2words

    text = str(num2words(number, lang=language))
    return text.replace(" and ", " ") if language == "en" else text


def _no_plural(french: str) -> str:
    """French "cents" and "vingts" lose their s before "mille" and in a year."""
    return re.sub("(cent|vingt)s$", r"\1", french)


def _chinese(number: int) -> str:
    """A numeral by the school rule: in groups of four digits, with one 零 for each run of zeros inside."""
    if number == 0:
        return "零"
    high, low = divmod(number, 10_000)
    text = f"{_chinese_group(high)}万" if high else ""
    if high and 0 < low < 1000:
        text += "零"
    text += _chinese_group(low)
    return text.removeprefix("一") if text.startswith("一十") else text


def _chinese_group(number: int) -> str:
    text = ""
    for unit, name in ((1000, "千"), (100, "百"), (10, "十"), (1, "")):
        digit = number // unit % 10
        if digit:
            text += "零一二三四五六七八九"[digit] + name
        elif text and number % unit and not text.endswith("零"):
            text += "零"
    return text


@cache
def ordinal(language: Language, number: int) -> str:
    """An ordinal from 1 to 99 in words, as it stands between an article and a masculine or neuter noun."""
    if language == "zh":
        return f"第{_chinese(number)}"
    from num2words import num2words

    text = str(num2words(number, lang=language, to="ordinal"))
    return text.replace("vingtsième", "vingtième") if language == "fr" else text


def figures(language: Language, number: int) -> str:
    """A whole number in figures, its thousands grouped as the language does."""
    from babel.numbers import format_decimal

    return _plain(format_decimal(number, locale=language))


def percent(language: Language, tenths: int) -> str:
    """Tenths of a percent in figures."""
    from babel.numbers import format_percent

    return _plain(format_percent(Decimal(tenths) / 1000, locale=language, decimal_quantization=False))


def money(language: Language, number: int, currency: str) -> str:
    """A whole sum in figures with the sign or code of its currency."""
    from babel.numbers import format_currency

    text = _plain(format_currency(number, currency, locale=language))
    return re.sub(r"(?<=[A-Z])(?=\d)", " ", re.sub(r"[.,]00(?!\d)", "", text))


def date(language: Language, day: datetime.date, form: str) -> str:
    """A date in figures and names: "full" with the weekday, "long" without; "MMMM" or "EEEE" for one name."""
    from babel.dates import format_date

    text = _plain(format_date(day, form, locale=language))
    # French has an ordinal for the first of the month only, and CLDR's patterns cannot say that.
    return text.replace("1 ", "1er ", 1) if language == "fr" and day.day == 1 else text


def numeric_date(language: Language, day: datetime.date) -> str:
    """A date in figures only, in the order of the language."""
    from babel.dates import format_skeleton

    return _plain(format_skeleton("yMd", day, locale=language))


def date_words(language: Language, day: datetime.date) -> str:
    """A date from 1800 to 2099 in words only, as it is read aloud."""
    month, year = _month(language, day.month), _year_words(language, day.year)
    match language:
        case "en":
            return f"{month} {ordinal('en', day.day)}, {year}"
        case "de":
            return f"der {ordinal('de', day.day)} {month} {year}"
        case "fr":
            return f"le {'premier' if day.day == 1 else words('fr', day.day)} {month} {year}"
        case "zh":
            return f"{year}年{words('zh', day.month)}月{words('zh', day.day)}日"


@cache
def _month(language: Language, month: int) -> str:
    return date(language, datetime.date(2000, month, 2), "MMMM")


@cache
def _year_words(language: Language, year: int) -> str:
    if language == "zh":
        return "".join("〇一二三四五六七八九"[int(digit)] for digit in str(year))
    from num2words import num2words

    text = str(num2words(year, lang=language, to="year"))
    return _no_plural(text) if language == "fr" else text.replace(" and ", " ")


@cache
def weekday(language: Language, number: int) -> str:
    """The name of a day of the week; Monday is 0."""
    return date(language, datetime.date(2001, 1, 1 + number), "EEEE")  # that day was a Monday


@cache
def time(language: Language, minutes: int) -> str:
    """A time of day, given in minutes after midnight."""
    from babel.dates import format_time

    hour, minute = divmod(minutes, 60)
    if language == "fr":
        return f"{hour} h {minute:02}"
    return _plain(format_time(datetime.time(hour, minute), "short", locale=language))


def _plain(text: str) -> str:
    return text.replace("\u202f", " ").replace("\u00a0", " ")
