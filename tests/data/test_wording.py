"""Wording is checked against what a native speaker writes, and against num2words wherever that is right."""

import datetime
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from num2words import num2words

from regard.data import wording
from regard.data.wording import Language


@pytest.mark.parametrize(
    ("number", "en", "de", "fr", "zh"),
    [
        (0, "zero", "null", "zéro", "零"),
        (1, "one", "eins", "un", "一"),
        (10, "ten", "zehn", "dix", "十"),
        (15, "fifteen", "fünfzehn", "quinze", "十五"),
        (21, "twenty-one", "einundzwanzig", "vingt et un", "二十一"),
        (80, "eighty", "achtzig", "quatre-vingts", "八十"),
        (91, "ninety-one", "einundneunzig", "quatre-vingt-onze", "九十一"),
        (105, "one hundred five", "einhundertfünf", "cent cinq", "一百零五"),
        (110, "one hundred ten", "einhundertzehn", "cent dix", "一百一十"),
        (200, "two hundred", "zweihundert", "deux cents", "二百"),
        (1000, "one thousand", "eintausend", "mille", "一千"),
        (1010, "one thousand ten", "eintausendzehn", "mille dix", "一千零一十"),
        (1200, "one thousand two hundred", "eintausendzweihundert", "mille deux cents", "一千二百"),
        (10_005, "ten thousand five", "zehntausendfünf", "dix mille cinq", "一万零五"),
        (21_000, "twenty-one thousand", "einundzwanzigtausend", "vingt et un mille", "二万一千"),
        (80_000, "eighty thousand", "achtzigtausend", "quatre-vingt mille", "八万"),
        (
            100_500,
            "one hundred thousand five hundred",
            "einhunderttausendfünfhundert",
            "cent mille cinq cents",
            "十万零五百",
        ),
        (101_000, "one hundred one thousand", "einhunderteintausend", "cent un mille", "十万一千"),
        (
            200_080,
            "two hundred thousand eighty",
            "zweihunderttausendachtzig",
            "deux cent mille quatre-vingts",
            "二十万零八十",
        ),
        (
            315_000,
            "three hundred fifteen thousand",
            "dreihundertfünfzehntausend",
            "trois cent quinze mille",
            "三十一万五千",
        ),
        (
            900_009,
            "nine hundred thousand nine",
            "neunhunderttausendneun",
            "neuf cent mille neuf",
            "九十万零九",
        ),
    ],
)
def test_numbers_in_words(number: int, en: str, de: str, fr: str, zh: str) -> None:
    assert [wording.words(language, number) for language in ("en", "de", "fr", "zh")] == [en, de, fr, zh]


@given(st.integers(0, 999_999))
def test_words_agree_with_num2words(number: int) -> None:
    english = num2words(number, lang="en").replace(" and ", " ").replace(",", "")
    german = num2words(number, lang="de").replace("einstausend", "eintausend")
    assert wording.words("en", number) == english
    assert wording.words("de", number) == german
    assert wording.words("fr", number) == num2words(number, lang="fr")


def read_chinese(text: str) -> int:
    """The value of a numeral: each unit multiplies the digit before it, and 万 all that came before."""
    total, group, digit = 0, 0, 0
    for sign in text:
        if sign in "零一二三四五六七八九":
            digit = "零一二三四五六七八九".index(sign)
        elif sign == "万":
            total, group, digit = (group + digit) * 10_000, 0, 0
        else:
            group += (digit or 1) * {"十": 10, "百": 100, "千": 1000}[sign]
            digit = 0
    return total + group + digit


@given(st.integers(0, 999_999))
def test_chinese_numerals_can_be_read_back(number: int) -> None:
    text = wording.words("zh", number)
    assert read_chinese(text) == number
    assert "零零" not in text
    assert number == 0 or not text.endswith("零")


@pytest.mark.parametrize(
    ("language", "number", "text"),
    [
        ("en", 2, "second"),
        ("en", 88, "eighty-eighth"),
        ("de", 3, "dritte"),
        ("de", 42, "zweiundvierzigste"),
        ("fr", 1, "premier"),
        ("fr", 80, "quatre-vingtième"),
        ("fr", 81, "quatre-vingt-unième"),
        ("zh", 12, "第十二"),
    ],
)
def test_ordinals(language: Language, number: int, text: str) -> None:
    assert wording.ordinal(language, number) == text


@pytest.mark.parametrize(
    ("language", "number", "share", "euros", "francs"),
    [
        ("en", "12,305", "12.5%", "€12,305", "CHF 50"),
        ("de", "12.305", "12,5 %", "12.305 €", "50 CHF"),
        ("fr", "12 305", "12,5 %", "12 305 €", "50 CHF"),
        ("zh", "12,305", "12.5%", "€12,305", "CHF 50"),
    ],
)
def test_figures(language: Language, number: str, share: str, euros: str, francs: str) -> None:
    assert wording.figures(language, 12_305) == number
    assert wording.percent(language, 125) == share
    assert wording.money(language, 12_305, "EUR") == euros
    assert wording.money(language, 50, "CHF") == francs


def test_whole_hundreds_keep_their_zeros() -> None:
    assert wording.money("en", 12_000, "EUR") == "€12,000"
    assert wording.money("de", 100, "USD") == "100 $"


@pytest.mark.parametrize(
    ("language", "full", "long", "numeric", "spelled"),
    [
        ("en", "Sunday, March 1, 2015", "March 1, 2015", "3/1/2015", "March first, twenty fifteen"),
        ("de", "Sonntag, 1. März 2015", "1. März 2015", "1.3.2015", "der erste März zweitausendfünfzehn"),
        ("fr", "dimanche 1er mars 2015", "1er mars 2015", "01/03/2015", "le premier mars deux mille quinze"),
        ("zh", "2015年3月1日星期日", "2015年3月1日", "2015/3/1", "二〇一五年三月一日"),
    ],
)
def test_dates(language: Language, full: str, long: str, numeric: str, spelled: str) -> None:
    day = datetime.date(2015, 3, 1)
    assert wording.date(language, day, "full") == full
    assert wording.date(language, day, "long") == long
    assert wording.numeric_date(language, day) == numeric
    assert wording.date_words(language, day) == spelled


@pytest.mark.parametrize(
    ("language", "day", "text"),
    [
        ("en", datetime.date(1905, 12, 31), "December thirty-first, nineteen oh-five"),
        ("en", datetime.date(2001, 5, 2), "May second, two thousand one"),
        ("de", datetime.date(1899, 7, 20), "der zwanzigste Juli achtzehnhundertneunundneunzig"),
        ("fr", datetime.date(1980, 8, 21), "le vingt et un août mille neuf cent quatre-vingt"),
        ("fr", datetime.date(1900, 8, 11), "le onze août mille neuf cent"),
        ("zh", datetime.date(2000, 10, 10), "二〇〇〇年十月十日"),
    ],
)
def test_dates_in_words(language: Language, day: datetime.date, text: str) -> None:
    assert wording.date_words(language, day) == text


@given(st.dates(datetime.date(1800, 1, 1), datetime.date(2099, 12, 31)))
def test_only_the_first_day_is_an_ordinal_in_french(day: datetime.date) -> None:
    text = wording.date("fr", day, "full")
    assert re.fullmatch(rf"[a-z]+ {'1er' if day.day == 1 else day.day} [a-zéû]+ {day.year}", text)


@pytest.mark.parametrize(
    ("minutes", "en", "de", "fr", "zh"),
    [
        (0, "12:00 AM", "00:00", "0 h 00", "00:00"),
        (9 * 60 + 5, "9:05 AM", "09:05", "9 h 05", "09:05"),
        (12 * 60, "12:00 PM", "12:00", "12 h 00", "12:00"),
        (15 * 60 + 4, "3:04 PM", "15:04", "15 h 04", "15:04"),
    ],
)
def test_times(minutes: int, en: str, de: str, fr: str, zh: str) -> None:
    assert [wording.time(language, minutes) for language in ("en", "de", "fr", "zh")] == [en, de, fr, zh]


def test_the_week_begins_on_monday() -> None:
    assert [wording.weekday(language, 0) for language in ("en", "de", "fr", "zh")] == [
        "Monday",
        "Montag",
        "lundi",
        "星期一",
    ]
    assert wording.weekday("de", 6) == "Sonntag"
