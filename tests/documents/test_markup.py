"""HTML: everything but the text stays byte for byte."""

from __future__ import annotations

import time
from contextlib import suppress
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.documents.document import translated
from regard.documents.reading import read
from regard.documents.scanning import scan
from regard.errors import DataError
from tests.documents.files import upper

PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>One &amp; two</title>
<style>p > b { color: red }</style><script>if (a < b) alert("text")</script></head>
<body onload='go("x > y")'><!-- a comment -->
  <p class=intro>Hello <b>big</b> world. See <a href="a.html?x=1&y=2" title="The next page">this <i>page</i></a>!</p>
  <ul><li>first<li>second &lt;tag&gt;</ul>
  <img src="cat.png" alt='A cat'><br>line<br/>
  <pre>keep   this</pre><textarea>and this</textarea>
</body></html>
"""


def through(text: str) -> str:
    return translated(read("a.html", text.encode()), upper).decode()


def test_a_page() -> None:
    document = read("a.html", PAGE.encode())
    assert document.texts == ["One & two", "Hello big world.", "See this page!", "first", "second <tag>", "line",
                              "The next page", "A cat"]  # fmt: skip
    assert document.marked == [1, 2]
    assert document.write(document.texts).decode() == PAGE
    expected = PAGE
    for text in ["One &amp; two", ">Hello <", ">big<", " world. See ", ">this <", ">page<", "first",
                 "second &lt;tag&gt;", "line<", "The next page", "A cat"]:  # fmt: skip
        expected = expected.replace(
            text, text.upper().replace("&AMP;", "&amp;").replace("&LT;", "&lt;").replace("&GT;", "&gt;")
        )
    assert through(PAGE) == expected


def test_inline_tags_go_with_their_words() -> None:
    document = read("a.html", b"<p>I have <b>bought</b> a <a href=x>car</a>.</p>")
    links = [[(0, 0), (1, 1), (2, 4), (3, 2), (4, 3)]]
    found = document.write(["Ich habe ein Auto gekauft."], links).decode()
    assert found == "<p>Ich habe ein <a href=x>Auto</a> <b>gekauft</b>.</p>"
    around = read("a.html", b"<p><b>One. Two.</b> Three.</p>")
    assert around.write(["eins.", "Zwei.", "drei."]) == b"<p><b>eins. Zwei.</b> drei.</p>"


def test_attributes_of_tags_that_move_are_translated_too() -> None:
    document = read("a.html", b"""<p>see <a title='a "b"' href=x>it</a> <img alt=cat src=y></p>""")
    assert document.texts == ["see it", 'a "b"', "cat"]
    assert document.write(["sieh es", "l'eau", 'die "Katze"']).decode() == (
        "<p>sieh <a title='l&#39;eau' href=x>es</a><img alt=\"die &quot;Katze&quot;\" src=y></p>"
    )
    # Only an attribute changes.
    assert (
        document.write(["see it", "c", "cat"]).decode() == "<p>see <a title='c' href=x>it</a> <img alt=cat src=y></p>"
    )


def test_what_a_page_says_of_itself_is_translated() -> None:
    page = (
        '<meta name="description" content="our town"><meta property=og:title content=town><meta name="Og:Description" '
        "content='it&#39;s'><meta name='author' content='Anna Smith'><meta property='og:url' content='a b'>"
    )
    document = read("a.html", page.encode())
    assert document.texts == ["our town", "town", "it's"]
    expected = page.replace("our town", "OUR TOWN").replace("content=town", 'content="TOWN"').replace("it&", "IT&")
    assert through(page) == expected.replace("39;s", "39;S")


def test_a_page_says_its_new_language() -> None:
    page = "<!DOCTYPE html>\n<html xml:lang='en' title='two' class=x lang=en-US><p lang=en>one</p></html>"
    document = read("a.html", page.encode(), target="zh_CN")
    found = translated(document, upper).decode()
    assert found == (
        "<!DOCTYPE html>\n<html xml:lang='zh-CN' title='TWO' class=x lang=\"zh-CN\"><p lang=en>ONE</p></html>"
    )
    assert document.write(document.texts).decode() == page  # nothing is translated, so it is what it was
    assert "lang=en-US" in through(page)  # nobody knows the new one
    assert translated(read("a.html", b"<html><p>a", target="de"), upper) == b"<html><p>A"


@pytest.mark.parametrize(
    "kept",
    ["<code>ls -l</code>", "<span translate=no>Regard</span>", '<b class="x notranslate"><i title=no>it</i></b>'],
)
def test_code_and_names_are_seen_and_kept(kept: str) -> None:
    assert through(f"<p>use {kept} here</p>") == f"<p>USE {kept} HERE</p>"


def test_whole_parts_may_be_left_alone() -> None:
    page = "<div translate='no'><p>one</p><div title='x'>two</div></div><svg><text>three</text></svg>"
    assert read("a.html", page.encode()).texts == []
    assert through(f"<p>a {'<svg><text>b</text></svg>'} c</p>") == "<p>A <svg><text>b</text></svg> C</p>"


@pytest.mark.parametrize(
    "page",
    ["<p>one <b>two<p>three</b>", "a < b and <3 <", "<b>one</i> two</b></b>", "<p>one <!-- two", "<a title='x>one",
     "<script>one</scripty>", "text <b", "<p>a<b><i>c</b>d</i>", "</", "<!x", "<p title>one</p>", "<p =x=y>one"],
)  # fmt: skip
def test_broken_pages_come_back(page: str) -> None:
    document = read("a.html", page.encode())
    assert document.write(document.texts).decode() == page
    for tag in ("<p>", "<b>", "</i>", "<!-- two", "<script>one</scripty>"):
        assert (tag in through(page)) == (tag in page)


def test_pages_in_other_encodings_are_refused() -> None:
    for head in ("<meta charset=iso-8859-1>", '<META http-equiv=x content="text/html; charset=windows-1252">'):
        with pytest.raises(DataError, match=r"a\.html: must be in UTF-8"):
            read("a.html", f"{head}<p>one".encode())
    page = '<meta charset="utf-16"><p>one'
    assert read("a.html", b"\xff\xfe" + page.encode("utf-16-le")).texts == ["one"]


@pytest.mark.parametrize(
    "piece", ["<", "<a", "<!--", "<a href='", "</a", "<b>", "<code>", "<script", "<?", "&", '<p title="', "<b><i></b>"]
)
def test_time_grows_with_the_page_and_not_with_its_square(piece: str) -> None:
    begin = time.perf_counter()
    with suppress(DataError):  # marks nested too deeply
        document = read("a.html", (piece * (200_000 // len(piece))).encode())
        document.write(document.texts)
    assert time.perf_counter() - begin < 10


class Tags(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(f"<{tag} {attrs}>")

    def handle_endtag(self, tag: str) -> None:
        self.tags.append(f"</{tag}>")


PIECES = ["<p>", "</p>", "<b>", "</b>", "<a href='x>y'>", "</a>", "<br>", "<i class=c>", "</i>", "word", " Two.",
          "&amp;", "\n", "<!-- c -->", "<img alt='pic'>", "1", "<code>x</code>"]  # fmt: skip


@given(st.lists(st.sampled_from(PIECES), max_size=20).map("".join))
def test_every_tag_is_there_once_after_translating(page: str) -> None:
    document = read("a.html", page.encode())
    assert document.write(document.texts).decode() == page
    found = through(page)
    assert sorted(Tags(found.lower()).tags) == sorted(Tags(page).tags)


@given(st.text(st.sampled_from("<>/ab!-='\"?& \n"), max_size=40))
def test_tokens_joined_are_the_page(page: str) -> None:
    tokens = scan(page)
    assert "".join(page[token.start : token.end] for token in tokens) == page
    through(page)
