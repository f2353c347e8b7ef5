"""The settings engine, on a small tree of its own: reading, overriding, building, writing, explaining."""

import json
import subprocess
import sys
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field, make_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from annotated_types import Ge, MinLen
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import InternalError, MissingError, UsageError
from regard.settings import build, check_tree, override, read, schema, table_kinds, to_toml


@dataclass(frozen=True)
class Adam:
    """The optimiser of the paper."""

    kind: Literal["adam"] = "adam"
    betas: tuple[float, float] = (0.9, 0.98)
    """How fast the two averages forget."""


@dataclass(frozen=True)
class Descent:
    kind: Literal["sgd", "momentum"]
    decay: float = 0.0


@dataclass(frozen=True)
class Training:
    """How the model learns."""

    steps: Annotated[int, Ge(1)]
    """Updates of the weights."""
    rate: float = 1e-3
    clip: float | None = None
    warmup: Annotated[int, Ge(0)] | Literal["auto"] = "auto"
    optimiser: Adam | Descent = field(default_factory=Adam)


@dataclass(frozen=True)
class Gpt:
    kind: Literal["gpt"]
    layers: int = 12
    window: int | None = None


@dataclass(frozen=True)
class Transformer:
    kind: Literal["transformer"]
    d_model: int = 512
    heads: int = 8
    positions: Literal["sinusoid", "rotary"] = "sinusoid"

    def __post_init__(self) -> None:
        if self.d_model % self.heads:
            raise ValueError(f"`d_model` must be a multiple of `heads` ({self.heads}), but is {self.d_model}")


@dataclass(frozen=True)
class Ruled:
    """Rules that stop at the first that is broken, and a name that is told without quotes."""

    low: int = 1
    high: int = 9
    share: float = 0.5
    schedule: Literal["paper", "none"] = "paper"
    warmup: int = 4

    def __post_init__(self) -> None:
        if self.low < 1:
            raise ValueError(f"`low` must be at least 1, but is {self.low}")
        if self.high < self.low:
            raise ValueError(f"`high` must be at least `low` ({self.low}), but is {self.high}")
        if not 0 < self.share < 1:
            raise ValueError(f"`share` must be between 0 and 1, but is {self.share}")
        if self.schedule == "paper" and self.warmup < 1:
            raise ValueError(f"`warmup` must be at least 1 for schedule = paper, but is {self.warmup}")


@dataclass(frozen=True)
class Source:
    file: str
    weight: float = 1.0
    filter: Gpt | None = None


@dataclass(frozen=True)
class Data:
    names: tuple[str, ...] = ()
    pairs: tuple[tuple[int, ...], ...] = ()
    sources: tuple[Source, ...] = ()
    lower: bool = False

    def __post_init__(self) -> None:
        if len(set(self.names)) < len(self.names):
            raise UsageError("`names` must differ, but two are the same; remove one")


@dataclass(frozen=True)
class Wrapper:
    data: Data = field(default_factory=Data)


@dataclass(frozen=True)
class Shelf:
    rows: tuple[Wrapper, ...]


@dataclass(frozen=True)
class Recipe:
    """Everything about a run."""

    model: Transformer | Gpt
    """The network."""
    training: Training
    name: str = ""
    limit: float = float("inf")
    extra: Wrapper | None = None
    data: Data = field(default_factory=Data)


GPT: dict[str, Any] = {"kind": "gpt"}
SMALL: dict[str, Any] = {"model": GPT, "training": {"steps": 5}}
SUCH = "write such a value"
OR_LEAVE = "write such a value, or leave KEY out"


def no_presets(name: str) -> Path:
    raise MissingError(f'there is no preset "{name}"; there are none')


def problems(tree: dict[str, Any]) -> list[str]:
    with pytest.raises(UsageError) as caught:
        build(Recipe, tree, "my.toml")
    return str(caught.value).split("\n")


def only_problem(tree: dict[str, Any]) -> str:
    (problem,) = problems(tree)
    return problem


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, str], Path]:
    def write_file(name: str, text: str) -> Path:
        place = tmp_path / name
        place.parent.mkdir(exist_ok=True)
        place.write_text(text, "utf-8")
        return place

    return write_file


Write = Callable[[str, str], Path]


class TestRead:
    def test_tables_merge_and_lists_replace(self, write: Write) -> None:
        write("base.toml", "name = 'base'\n[data]\nnames = ['a', 'b']\nlower = true\n")
        top = write("top.toml", "extends = 'base.toml'\nname = 'top'\n[data]\nnames = ['c']\n")
        assert read(top, no_presets) == {"name": "top", "data": {"names": ["c"], "lower": True}}

    def test_later_files_of_a_list_win_and_the_file_wins_over_all(self, write: Write) -> None:
        write("a.toml", "x = 1\ny = 1\nz = 1")
        write("b.toml", "y = 2\nz = 2")
        assert read(write("c.toml", "extends = ['a.toml', 'b.toml']\nz = 3"), no_presets) == {"x": 1, "y": 2, "z": 3}

    def test_a_name_is_a_preset_and_a_path_is_relative_to_its_file(self, write: Write) -> None:
        preset = write("presets/base.toml", "extends = 'inner.toml'\nx = 1")
        write("presets/inner.toml", "x = 0\ny = 2")
        assert read(write("a.toml", "extends = 'base'"), {"base": preset}.__getitem__) == {"x": 1, "y": 2}

    def test_another_kind_replaces_the_table_and_the_same_kind_merges(self, write: Write) -> None:
        write("base.toml", "[model]\nkind = 'transformer'\nheads = 4\n")
        other = write("other.toml", "extends = 'base.toml'\n[model]\nkind = 'gpt'\nlayers = 2\n")
        same = write("same.toml", "extends = 'base.toml'\n[model]\nkind = 'transformer'\nd_model = 8\n")
        silent = write("silent.toml", "extends = 'base.toml'\n[model]\nd_model = 8\n")
        assert read(other, no_presets) == {"model": {"kind": "gpt", "layers": 2}}
        assert read(same, no_presets) == {"model": {"kind": "transformer", "heads": 4, "d_model": 8}}
        assert read(silent, no_presets) == read(same, no_presets)

    def test_a_cycle_shows_its_chain(self, write: Write) -> None:
        write("b.toml", "extends = './a.toml'")
        with pytest.raises(UsageError, match=r"a\.toml → .*b\.toml → .*a\.toml: a file must not extend itself"):
            read(write("a.toml", "extends = 'b.toml'"), no_presets)

    def test_two_ways_to_one_file_are_no_cycle(self, write: Write) -> None:
        write("base.toml", "x = 1")
        write("a.toml", "extends = 'base.toml'")
        write("b.toml", "extends = 'base.toml'\ny = 2")
        assert read(write("c.toml", "extends = ['a.toml', 'b.toml']"), no_presets) == {"x": 1, "y": 2}

    def test_a_missing_file_says_who_wanted_it(self, write: Write, tmp_path: Path) -> None:
        with pytest.raises(MissingError, match=r"none\.toml: must be a file .* No such file"):
            read(tmp_path / "none.toml", no_presets)
        with pytest.raises(MissingError, match=r"a\.toml → .*none\.toml: must be a file"):
            read(write("a.toml", "extends = 'none.toml'"), no_presets)
        with pytest.raises(MissingError, match=r'a\.toml: extends: there is no preset "base"'):
            read(write("a.toml", "extends = 'base'"), no_presets)

    @pytest.mark.parametrize(
        ("text", "spot"),
        [
            ("x = 1\ny = hello\n", "2:5: must be TOML, but: Invalid value, in `y = hello`"),
            ("x = 1\nx = 2\n", "2:6: must be TOML, but: Cannot overwrite a value"),
            ("x = 1\ny = [1,\n", "3:1: must be TOML"),
        ],
    )
    def test_a_syntax_error_says_line_and_column(self, write: Write, text: str, spot: str) -> None:
        with pytest.raises(UsageError) as caught:
            read(write("a.toml", text), no_presets)
        assert f"a.toml:{spot}" in str(caught.value)

    def test_bytes_that_are_not_utf8_say_line_and_column(self, tmp_path: Path) -> None:
        (tmp_path / "a.toml").write_bytes(b"x = 1\ny = 'caf\xe9'\n")
        with pytest.raises(UsageError, match=r"a\.toml:2:9: must be UTF-8 text, but has the byte 0xe9"):
            read(tmp_path / "a.toml", no_presets)

    def test_a_byte_order_mark_is_ignored(self, write: Write) -> None:
        assert read(write("a.toml", "\ufeffx = 1"), no_presets) == {"x": 1}

    def test_extends_must_be_names(self, write: Write) -> None:
        with pytest.raises(UsageError, match=r"a\.toml: extends: must be a name or a list of names, but is \[1\]"):
            read(write("a.toml", "extends = [1]"), no_presets)


class TestOverride:
    @pytest.mark.parametrize(
        ("text", "value"),
        [
            ("500", 500),
            ("1e-3", 1e-3),
            ("true", True),
            ("a.en", "a.en"),
            ("my file.en", "my file.en"),
            ("x#y", "x#y"),
            ("", ""),
            ("a=b", "a=b"),
            ("2024-05-01", "2024-05-01"),
            ("1\nother = 2", "1\nother = 2"),
            ('"500"', "500"),
            ('["a", "b"]', ["a", "b"]),
            ("{kind='gpt'}", {"kind": "gpt"}),
        ],
    )
    def test_a_value_is_toml_or_else_a_string(self, text: str, value: object) -> None:
        assert override({}, [f"a.b={text}"]) == {"a": {"b": value}}

    def test_the_tree_underneath_stays_and_is_not_changed(self) -> None:
        tree: dict[str, Any] = {"training": {"steps": 1, "rate": 2.0}}
        assert override(tree, ["training.steps=3", "name=x", "training.steps = 4"]) == {
            "training": {"steps": 4, "rate": 2.0},
            "name": "x",
        }
        assert tree == {"training": {"steps": 1, "rate": 2.0}}

    @pytest.mark.parametrize(
        "arguments",
        [["training.optimiser.kind=sgd", "training.optimiser.decay=1"], ["training.optimiser={kind='sgd'}"]],
    )
    def test_a_kind_with_other_keys_replaces_a_table_of_the_default_kind(self, arguments: list[str]) -> None:
        tree = {"model": GPT, "training": {"steps": 5, "optimiser": {"betas": [0.8, 0.9]}}}
        found = build(Recipe, override(tree, arguments, table_kinds(Recipe)), "here")
        assert found.training.optimiser == Descent("sgd", 1.0 if len(arguments) == 2 else 0.0)
        # The kind that it is anyway takes nothing away, and nor does a table that names none.
        for same in ("training.optimiser.kind=adam", "training.optimiser={}"):
            kept = build(Recipe, override(tree, [same], table_kinds(Recipe)), "here")
            assert kept.training.optimiser == Adam(betas=(0.8, 0.9))

    def test_kinds_of_one_class_have_the_same_keys_and_merge(self) -> None:
        kinds = table_kinds(make_dataclass("Tree", [("x", Descent, field(default=Descent("sgd")))], frozen=True))
        assert override({"x": {"decay": 2.0}}, ["x.kind=momentum"], kinds) == {"x": {"decay": 2.0, "kind": "momentum"}}

    @pytest.mark.parametrize(
        "arguments", [["model.kind=gpt", "model.layers=3"], ["model.layers=3", "model={kind='gpt'}"]]
    )
    def test_another_kind_replaces_the_table_whatever_the_order(self, arguments: list[str]) -> None:
        tree = {"model": {"kind": "transformer", "heads": 4}}
        assert override(tree, arguments) == {"model": {"kind": "gpt", "layers": 3}}

    @pytest.mark.parametrize("argument", ["steps", "=5", "a..b=5", ".a=1", "a b=1", "names=[a,b]", "x='"])
    def test_a_malformed_argument_is_named(self, argument: str) -> None:
        with pytest.raises(UsageError) as caught:
            override({}, ["name=fine", argument])
        assert str(caught.value).startswith(f"{argument}: ")


class TestBuild:
    def test_builds_the_plain_dataclasses(self) -> None:
        tree = {
            "model": {"kind": "transformer", "heads": 2},
            "training": {"steps": 5, "rate": 1, "warmup": 3, "optimiser": {"kind": "momentum"}},
            "data": {"names": ["a", "b"], "pairs": [[1, 2], []], "sources": [{"file": "f", "filter": GPT}]},
        }
        assert build(Recipe, tree, "my.toml") == Recipe(
            Transformer("transformer", heads=2),
            Training(5, rate=1.0, warmup=3, optimiser=Descent("momentum")),
            data=Data(("a", "b"), ((1, 2), ()), (Source("f", filter=Gpt("gpt")),)),
        )
        assert type(build(Recipe, tree, "my.toml").training.rate) is float

    @pytest.mark.parametrize(
        ("argument", "key", "rule", "fix"),
        [
            ('training.steps="500"', "training.steps", 'must be a whole number, but is "500"', "write 500"),
            ("training.steps=5.0", "training.steps", "must be a whole number, but is 5.0", "write 5"),
            ("training.steps=true", "training.steps", "must be a whole number, but is true", SUCH),
            ("training.steps.x=1", "training.steps", "must be a whole number, but is a table", SUCH),
            ("training.steps=0", "training.steps", "must be greater than or equal to 1, but is 0", SUCH),
            ("training.rate=true", "training.rate", "must be a number, but is true", OR_LEAVE),
            ("training.clip=x", "training.clip", 'must be a number, but is "x"', OR_LEAVE),
            (
                "training.warmup=aut",
                "training.warmup",
                'must be a whole number or "auto", but is "aut"',
                'write "auto"',
            ),
            (
                "training.warmup=-1",
                "training.warmup",
                "must be greater than or equal to 0, but is -1",
                OR_LEAVE,
            ),
            ("model=gpt", "model", 'must be a table, but is "gpt"', 'write {kind = "gpt"}'),
            ("training=5", "training", "must be a table, but is 5", "write its keys below a line [training]"),
            ("model.kind=gtp", "model.kind", 'must be "transformer" or "gpt", but is "gtp"', 'write "gpt"'),
            ("model.kind=['gpt']", "model.kind", 'must be "transformer" or "gpt", but is ["gpt"]', SUCH),
            (
                "training.optimiser={kind='adam', betas=[1]}",
                "training.optimiser.betas",
                "must be a list of 2 (a number, a number), but is [1]",
                OR_LEAVE,
            ),
            (
                "training.optimiser={kind='adam', betas=[1, '2']}",
                "training.optimiser.betas[1]",
                'must be a number, but is "2"',
                "write 2",
            ),
            ("data.names=a.en", "data.names", 'must be a list, each item a string, but is "a.en"', 'write ["a.en"]'),
            ("data.names=['a', 1]", "data.names[1]", "must be a string, but is 1", 'write "1"'),
            ("data.names=[2024-05-01]", "data.names[0]", "must be a string, but is 2024-05-01", 'write "2024-05-01"'),
            (
                "data.pairs=[[1], [2, 'x']]",
                "data.pairs[1][1]",
                'must be a whole number, but is "x"',
                f"{SUCH}, or leave data.pairs out",
            ),
            ("data.lower=1", "data.lower", "must be true or false, but is 1", OR_LEAVE),
            ("name=\udce9", "name", 'must be Unicode text, but is "\\udce9"', OR_LEAVE),
            (
                "data.sources.file=f",
                "data.sources",
                "must be a list of tables, but is a table",
                "write [[data.sources]]",
            ),
            (
                "data.sources=[3]",
                "data.sources[0]",
                "must be a table, but is 3",
                "write its keys below a line [[data.sources]]",
            ),
            ("data.sources=[{}]", "data.sources[0].file", "must be set, but is missing", "add `file = …` (a string)"),
        ],
    )
    def test_a_wrong_value_says_place_key_rule_value_and_fix(
        self, argument: str, key: str, rule: str, fix: str
    ) -> None:
        assert only_problem(override(SMALL, [argument])) == f"my.toml: {key}: {rule}; {fix.replace('KEY', key)}"

    def test_a_long_value_is_cut(self) -> None:
        assert len(only_problem(SMALL | {"name": ["x" * 1000]})) < 200

    @pytest.mark.parametrize(
        ("argument", "table", "fix"),
        [
            ("training.rat=2", "[training]", "did you mean `rate`?"),
            ("steps=2", "the top of the file", "`steps` belongs to [training]"),
            ("trainin=2", "the top of the file", "did you mean `training`?"),
            ("model.heads=2", "[model]", '`heads` belongs to [model] of kind "transformer"'),
            ("model.zzz=2", "[model]", "remove it; the keys there are kind, layers, window"),
            ("data.nam=2", "[data]", "did you mean `names`?"),
            ("data.name=2", "[data]", "did you mean `names`? `name` belongs to the top of the file"),
            ("extra.data.clip=2", "[extra.data]", "`clip` belongs to [training]"),
        ],
    )
    def test_an_unknown_key_says_what_was_meant(self, argument: str, table: str, fix: str) -> None:
        key = argument.removesuffix("=2")
        problem = f"my.toml: {key}: {table} has no such key, but 2 is set; {fix}"
        assert only_problem(override(SMALL, [argument])) == problem

    def test_an_unknown_key_in_a_list_of_tables(self) -> None:
        tree = SMALL | {"data": {"sources": [{"file": "f", "wieght": 2}]}}
        assert "data.sources[0].wieght: [[data.sources]] has no such key" in only_problem(tree)

    def test_every_problem_is_reported_at_once(self) -> None:
        tree = {
            "model": {"kind": "transformer", "heads": 8, "d_model": 12},
            "training": {"rate": "fast", "optimiser": {"kind": "x"}},
            "data": {"names": ["a", "a"]},
            "nam": "x",
        }
        assert [line.split(": ")[1] for line in problems(tree)] == [
            "nam", "model", "training.steps", "training.rate", "training.optimiser.kind", "data",
        ]  # fmt: skip

    def test_a_rule_between_fields_keeps_its_words_and_gains_its_path(self) -> None:
        model = {"kind": "transformer", "heads": 8, "d_model": 12}
        assert problems(SMALL | {"model": model, "extra": {"data": {"names": ["a", "a"]}}}) == [
            "my.toml: model: `d_model` must be a multiple of `heads` (8), but is 12",
            "my.toml: extra.data: `names` must differ, but two are the same; remove one",
        ]

    def test_a_kind_left_out_is_that_of_the_default_and_else_asked_for(self) -> None:
        tree = override(SMALL, ["training.optimiser.betas=[0.5, 0.6]"])
        assert build(Recipe, tree, "my.toml").training.optimiser == Adam(betas=(0.5, 0.6))
        assert only_problem(SMALL | {"model": {"layers": 3}}) == (
            'my.toml: model.kind: must be set, but is missing; add `kind = …` ("transformer" or "gpt")'
        )

    def test_missing_tables_are_named(self) -> None:
        assert problems({}) == [
            "my.toml: model: must be set, but is missing; add [model]",
            "my.toml: training: must be set, but is missing; add [training]",
        ]


def tree_with(hint: Any, **options: Any) -> type:
    return make_dataclass("Odd", [("x", hint, field(**options))], frozen=True)


class TestRules:
    @pytest.mark.parametrize(
        ("tree", "told"),
        [
            ({"low": 0, "share": 2.0, "warmup": 0}, ["`low`", "`share`", "`warmup`"]),
            ({"low": 5, "high": 3, "share": 2.0}, ["`high`", "`share`"]),
            # Whether `high` is too low, or `warmup`, nobody knows before the other is right.
            ({"low": "one", "high": 0, "share": 2.0}, ["low:", "`share`"]),
            ({"schedule": "papr", "warmup": 0}, ["schedule:"]),
            ({"lw": 1, "high": 0}, ["lw:", "`high`"]),
        ],
    )
    def test_each_that_is_broken_is_named(self, tree: dict[str, Any], told: list[str]) -> None:
        with pytest.raises(UsageError) as caught:
            build(Ruled, tree, "file")
        assert [line.split(" ")[1] for line in str(caught.value).split("\n")] == told

    def test_a_rule_that_names_nothing_that_was_set_is_told_once(self) -> None:
        stubborn = make_dataclass("stubborn", [("size", int, 1)], namespace={"__post_init__": refuse}, frozen=True)
        with pytest.raises(UsageError, match=r"\Afile: the weather must be fine, but is not\Z"):
            build(stubborn, {"size": 2}, "file")


def refuse(settings: object) -> None:
    raise ValueError("the weather must be fine, but is not")


class TestCheckTree:
    def test_the_tree_of_these_tests_is_sound(self) -> None:
        check_tree(Recipe)

    @pytest.mark.parametrize(
        ("cls", "rule"),
        [
            (tree_with(int | None), "Odd.x: allows None, .* so None must be its default"),
            (tree_with(int | None, default=3), "Odd.x: allows None"),
            (tree_with(Annotated[int | None, Ge(0)], default=3), "Odd.x: allows None"),
            (tree_with(tree_with(int | None) | None, default=None), "Odd.x: allows None"),
            (tree_with(Source | Wrapper), r"Odd.x: tables .* `kind`, but have \[None, None\]"),
            (tree_with(Gpt | tree_with(int)), "Odd.x: tables .* `kind`, but have"),
            (tree_with(Gpt | make_dataclass("Twin", [("kind", Literal["gpt"])], frozen=True)), "told apart"),
            (tree_with(make_dataclass("Soft", [])), "Soft: settings must be a frozen dataclass"),
            (tree_with(dict[str, int]), "Odd.x: settings hold strings"),
            (tree_with(Path), "Odd.x: settings hold strings"),
            (tree_with(Gpt | int), "Odd.x: settings hold strings"),
            (tree_with(tuple[int | None, ...]), "Odd.x: settings hold strings"),
            (tree_with(tuple[Gpt | None, ...]), "Odd.x: settings hold strings"),
            (tree_with(tuple[Gpt, Gpt]), "Odd.x: settings hold strings"),
            (make_dataclass("Odd", [("extends", str)], frozen=True), "Odd.extends: `extends` belongs to the file"),
        ],
    )
    def test_a_tree_that_toml_cannot_hold_is_refused(self, cls: type, rule: str) -> None:
        for use in (check_tree, schema, lambda cls: build(cls, {}, "my.toml")):
            with pytest.raises(InternalError, match=rule):
                use(cls)

    def test_a_table_that_holds_itself_is_refused(self) -> None:
        with pytest.raises(InternalError, match="does not hold itself"):
            check_tree(Endless)


@dataclass(frozen=True)
class Endless:
    inner: "Endless | None" = None


names = st.lists(st.text(), max_size=4, unique=True).map(tuple)
floats = st.floats(allow_nan=False)
gpts = st.builds(Gpt, st.just("gpt"), st.integers(), st.none() | st.integers())
transformers = st.builds(
    lambda heads, times, positions: Transformer("transformer", heads * times, heads, positions),
    st.integers(1, 99), st.integers(), st.sampled_from(["sinusoid", "rotary"]),
)  # fmt: skip
optimisers = st.builds(Adam, st.just("adam"), st.tuples(floats, floats)) | st.builds(
    Descent, st.sampled_from(["sgd", "momentum"]), floats
)
trainings = st.builds(
    Training, st.integers(1), floats, st.none() | floats, st.integers(0) | st.just("auto"), optimisers
)
sources = st.builds(Source, st.text(), floats, st.none() | gpts)
datas = st.builds(
    Data,
    names,
    st.lists(st.lists(st.integers(), max_size=30).map(tuple), max_size=3).map(tuple),
    st.lists(sources, max_size=3).map(tuple),
    st.booleans(),
)
recipes = st.builds(
    Recipe, transformers | gpts, trainings, st.text(), floats, st.none() | st.builds(Wrapper, datas), datas
)


class TestToToml:
    @given(recipes)
    def test_is_read_back_to_an_equal_object(self, recipe: Recipe) -> None:
        assert build(Recipe, tomllib.loads(to_toml(recipe)), "my.toml") == recipe

    @given(st.text(st.characters(max_codepoint=0x2FFF, exclude_categories=["Cs"])))
    def test_any_text_survives_and_a_line_is_a_line(self, name: str) -> None:
        text = to_toml(Wrapper(Data((name,))))
        assert tomllib.loads(text)["data"]["names"] == [name]
        assert text.count("\n") == 5

    def test_a_row_that_holds_only_a_table_is_still_a_row(self) -> None:
        shelf = Shelf((Wrapper(), Wrapper(Data(("a",)))))
        assert build(Shelf, tomllib.loads(to_toml(shelf)), "my.toml") == shelf

    def test_reads_as_a_person_would_write_it(self) -> None:
        long = tuple(f"corpus-{index}/train.en" for index in range(5))
        recipe = Recipe(
            Gpt("gpt"),
            Training(100, rate=1e-9, optimiser=Descent("sgd", 1e20)),
            'a "b" \\ é\n',
            extra=Wrapper(),
            data=Data(long, ((1, 2), ()), (Source("x", filter=Gpt("gpt", window=3)), Source("y"))),
        )
        assert to_toml(recipe) == (
            'name = "a \\"b\\" \\\\ é\\n"\nlimit = inf\n\n'
            '[model]\nkind = "gpt"\nlayers = 12\n\n'
            '[training]\nsteps = 100\nrate = 1e-9\nwarmup = "auto"\n\n'
            '[training.optimiser]\nkind = "sgd"\ndecay = 1e20\n\n'
            "[extra.data]\nnames = []\npairs = []\nsources = []\nlower = false\n\n"
            "[data]\nnames = [\n"
            + "".join(f'  "{name}",\n' for name in long)
            + "]\npairs = [[1, 2], []]\nlower = false\n\n"
            '[[data.sources]]\nfile = "x"\nweight = 1.0\n\n'
            '[data.sources.filter]\nkind = "gpt"\nlayers = 12\nwindow = 3\n\n'
            '[[data.sources]]\nfile = "y"\nweight = 1.0\n'
        )


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    return schema(Recipe)


class TestSchema:
    def test_docstrings_of_classes_and_fields_explain(self, found: dict[str, Any]) -> None:
        assert (found["title"], found["description"]) == ("Recipe", "Everything about a run.")
        assert found["properties"]["model"] == {
            "anyOf": [{"$ref": "#/$defs/Transformer"}, {"$ref": "#/$defs/Gpt"}],
            "description": "The network.",
        }
        training = found["$defs"]["Training"]
        assert training["description"] == "How the model learns."
        assert training["properties"]["steps"] == {
            "description": "Updates of the weights.",
            "minimum": 1,
            "type": "integer",
        }
        assert found["$defs"]["Adam"]["properties"]["betas"]["description"] == "How fast the two averages forget."

    def test_no_table_takes_other_keys_or_demands_any(self, found: dict[str, Any]) -> None:
        assert set(found["$defs"]) == {"Adam", "Descent", "Training", "Gpt", "Transformer", "Source", "Data", "Wrapper"}
        for table in (found, *found["$defs"].values()):
            assert table["additionalProperties"] is False
            assert "required" not in table

    def test_the_file_may_extend_others(self, found: dict[str, Any]) -> None:
        assert next(iter(found["properties"])) == "extends"
        assert "extends" not in found["$defs"]["Data"]["properties"]

    def test_is_json_without_null_or_infinity(self, found: dict[str, Any]) -> None:
        json.dumps(found, allow_nan=False)
        assert found["$defs"]["Training"]["properties"]["clip"] == {"type": "number"}
        assert found["$defs"]["Training"]["properties"]["rate"] == {"type": "number", "default": 1e-3}
        assert found["properties"]["limit"] == {"type": "number"}


def test_bounds_speak_of_lengths_too() -> None:
    cls = make_dataclass("Named", [("x", Annotated[tuple[str, ...], MinLen(1)])], frozen=True)
    with pytest.raises(UsageError, match=r"my.toml: x: must have at least 1 item, but is \[\]"):
        build(cls, {"x": []}, "my.toml")


def test_pydantic_is_imported_only_when_something_is_built() -> None:
    code = "import sys, regard.settings; sys.exit('pydantic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
