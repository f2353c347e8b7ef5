"""The model card: what a model is, learned from, scores and is licensed under, for whoever is handed its folder.

Nobody fills it in. It is put together from the recipe, from `data.json` (what became of the corpus) and from
`metrics.jsonl` (how the run went, on which machine). It begins with YAML that model hubs read.
"""

from __future__ import annotations

import hashlib
import json
import platform
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from regard import folder
from regard.counts import so_many
from regard.data.corpus import Elsewhere, Files, Mixture, Music, Text, open_corpus
from regard.data.filters import translates
from regard.data.generated import Generated
from regard.data.labelled import Classes, Labelled, Restoring, Tagged, place_of
from regard.evaluation.metrics import Score
from regard.machine import this_machine
from regard.models.transformer import TransformerSettings
from regard.recipe import LABELLING, Recipe, load_recipe, presets
from regard.settings.tree import text_of
from regard.status import clock
from regard.training.validation import Validation
from regard.version import VERSION
from regard.viewing.training_curves import CURVES, Event, read_metrics

START = "start"
TASKS = {
    "continue": "text-generation", "compose": "text-generation", "classify": "text-classification",
    "tag": "token-classification", "fill": "fill-mask", "translate": "translation",
    "rewrite": "text2text-generation",
}  # fmt: skip
DOES = {
    "continue": "continues text", "compose": "continues music", "classify": "gives each text a label",
    "tag": "gives each word a label", "fill": "fills gaps in text", "translate": "translates",
    "rewrite": "writes a text for a text, such as its summary",
}  # fmt: skip


def start_facts(step: int, device: torch.device, processes: int = 1) -> dict[str, object]:
    """What is worth knowing when a run starts at `step` or goes on from it; it goes to `metrics.jsonl`."""
    program, *arguments = sys.argv or [""]
    typed = Path(program).name in ("regard", "__main__.py")
    return {
        "step": step,
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": shlex.join(["regard", *arguments]) if typed else None,
        "machine": str(this_machine(device)),
        "processes": processes,
        "regard": VERSION,
        "torch": str(torch.__version__),
        "python": platform.python_version(),
    }


@dataclass(frozen=True)
class Result:
    """What came out of a run."""

    parameters: int
    vocabulary: int
    step: int
    ended: str
    """The sentence that says why it ended."""
    validation: Validation
    flops: float
    """Of the matrix products of all training steps."""
    scores: Sequence[Score] = ()
    """On the validation set, each with its signature."""


def model_card(place: Path, recipe: Recipe, result: Result) -> str:
    """The card of the model in the folder `place`, as Markdown."""
    report = folder.read_report(place)
    events = read_metrics(place / folder.METRICS) if (place / folder.METRICS).is_file() else []
    languages = _languages(recipe, report)
    sections = [
        _front_matter(recipe, result, languages),
        f"# {recipe.name}\n\n{_first_sentence(recipe, result, languages)}",
        _use(place, recipe),
        _scores(recipe, result, report),
        _data(recipe, report),
        _training(place, recipe, result, events),
        _limits(recipe, languages),
        _licence(recipe),
    ]
    return "\n\n".join(sections) + "\n"


# ---- sections


def _front_matter(recipe: Recipe, result: Result, languages: Sequence[str]) -> str:
    task = TASKS[_verb(recipe, languages)]
    lines = ["---", "library_name: regard", f"pipeline_tag: {task}", f"license: {_yaml(recipe.licence or 'unknown')}"]
    if languages:
        lines += ["language:", *(f"- {_yaml(language)}" for language in languages)]
    lines += ["tags:", "- regard", f"- {_yaml(recipe.model.kind)}", "model-index:", f"- name: {_yaml(recipe.name)}"]
    lines += ["  results:", f"  - task:\n      type: {task}", "    dataset:", "      type: custom"]
    lines += [f"      name: {_yaml(_corpus_name(recipe))}", "      split: validation", "    metrics:"]
    figures = [("perplexity", "perplexity per token", result.validation.perplexity)]
    if recipe.model.kind in LABELLING:
        figures = [("loss", "nats a label", result.validation.nll)]
    figures += [(score.name.split()[0].lower(), f"{score.name} ({score.signature})", score.value)
                for score in result.scores]  # fmt: skip
    for kind, name, value in figures:
        lines += [f"    - type: {_yaml(kind)}", f"      name: {_yaml(name)}", f"      value: {value:.6g}"]
    return "\n".join([*lines, "---"])


def _first_sentence(recipe: Recipe, result: Result, languages: Sequence[str]) -> str:
    verb = _verb(recipe, languages)
    does = DOES[verb]
    if len(languages) == 2 and verb == "translate":
        does += f" from `{languages[0]}` to `{languages[1]}`"
    elif languages:
        does += f" ({', '.join(f'`{language}`' for language in languages)})"
    begun = "nothing" if recipe.init is None else f"`{Path(recipe.init).name}`"
    return (
        f"A {recipe.model.kind} of {result.parameters:,} parameters that {does}, over a vocabulary of "
        f"{result.vocabulary:,} tokens. Trained from {begun} with Regard {VERSION} for {so_many(result.step, 'step')}."
    )


def _use(place: Path, recipe: Recipe) -> str:
    # The folder may be moved and renamed; it is called here as it was when it was written.
    name = place.resolve().name
    call, arguments = {
        "classify": ("classify", "lines.txt > labels.txt"), "tag": ("tag", "lines.txt > labels.txt"),
        "fill": ("fill", "'Once _ a time'"), "compose": ("generate", "--midi out.mid"),
        "continue": ("generate", "'Once upon a time'"), "translate": ("translate", "lines.txt > translated.txt"),
        "rewrite": ("translate", "lines.txt > translated.txt"),
    }[_verb(recipe)]  # fmt: skip
    return (
        "## Use\n\nThe folder is all that is needed.\n\n"
        f"```sh\nregard {call} {shlex.quote(name)} {arguments}\n```\n\n"
        f"```python\nimport regard\n\nmodel = regard.load({json.dumps(name, ensure_ascii=False)})\n"
        f'print(model.{call}(["…"]))\n```'
    )


def _scores(recipe: Recipe, result: Result, report: Mapping[str, Any]) -> str:
    found = result.validation
    held_out = " held out of the corpus" if report.get("held_out") else ""
    lines = f"{so_many(report['valid'], 'line')}{held_out}, " if report.get("valid") else ""
    rows = [("perplexity per token", f"{found.perplexity:.3f}", "exp(nats per token), ends of sentences included")]
    advice = (
        "Compare perplexities per token only between models of one vocabulary, and scores only where signatures agree. "
    )
    what = "tokens"
    if recipe.model.kind in LABELLING:
        rows, advice, what = [("loss", f"{found.nll:.4f}", "nats a label")], "", "labels"
    if found.perplexity_per_byte is not None:
        rows.append(("perplexity per byte", f"{found.perplexity_per_byte:.4f}", "exp(nats per byte of UTF-8)"))
    rows += [(score.name, f"{score.value:.2f}", f"`{score.signature}`") for score in result.scores]
    return (
        f"## Scores\n\nOn the validation set: {lines}{found.tokens:,} {what}.\n\n"
        f"{_table(('score', 'value', 'definition'), rows)}\n\n"
        f"{advice}The validation set may have been used to choose among models: a test set gives fairer figures "
        "(`regard evaluate`)."
    )


def _data(recipe: Recipe, report: Mapping[str, Any]) -> str:
    parts = [f"## Data\n\n{_corpus_name(recipe)}."]
    rows = []
    for corpus in report.get("corpora", ()):
        dropped = {reason: found["count"] for reason, found in corpus["dropped"].items() if found["count"]}
        why = ", ".join(f"{count:,} {reason}" for reason, count in dropped.items()) or "none"
        rows.append((corpus["name"], f"{corpus['read']:,}", f"{corpus['kept']:,}", why))
    if rows:
        unit = "lines" if isinstance(recipe.data, Text) else "pairs"
        parts.append(_table(("corpus", f"{unit} read", "kept", "dropped"), rows))
        repeated = any(corpus.get("copies", 1.0) > 1 for corpus in report["corpora"])
        amount = f"{unit} an epoch, of which some occur several times" if repeated else "of them"
        parts.append(f"Trained on {report['train']:,} {amount}; `{folder.DATA}` says more.")
    if files := list(_checksums(recipe)):
        parts.append(_table(("file", "bytes", "SHA-256"), files))
    if warnings := report.get("warnings"):
        parts.append("What looked wrong:\n\n" + "\n".join(f"- {warning}" for warning in warnings))
    return "\n\n".join(parts)


def _training(place: Path, recipe: Recipe, result: Result, events: Sequence[Event]) -> str:
    settings, optimiser = recipe.training, recipe.training.optimiser
    starts = [event for event in events if event.get("event") == START]
    schedule = f"{optimiser.kind}, {optimiser.schedule} schedule, {so_many(optimiser.warmup, 'step')} of warm-up"
    rows = [
        ("model", _sizes(recipe)),
        ("batches", f"{recipe.batch.tokens:,} tokens a side, {recipe.batch.layout}"),
        ("steps", f"{result.step:,} of {settings.steps:,}. {result.ended}"),
        ("optimiser", schedule + _by_clock(recipe, events)),
        ("label smoothing", str(settings.label_smoothing)),
        ("seed", str(recipe.seed)),
    ]
    if seconds := _seconds(events):
        rows.append(("time", f"{clock(seconds)} (h:mm:ss)" if seconds >= 3600 else f"{clock(seconds)} (m:ss)"))
    rows.append(("cost", f"about {result.flops:.1e} FLOPs of matrix products"))
    for event in _changes(starts):
        team = f", {event['processes']} processes" if event.get("processes", 1) > 1 else ""
        rows.append(("machine", f"{event['machine']}{team}; torch {event['torch']}, Python {event['python']}"))
    parts = [f"## Training\n\n{_table(('', ''), rows)}"]
    if typed := [event["command"] for event in starts if event.get("command")]:
        parts.append("Trained by:\n\n```sh\n" + "\n".join(typed) + "\n```")
    again = "trains such a model again, though not to the bit" if settings.by_clock else "trains the model again"
    needed = "the same corpus" if recipe.init is None else f"the same corpus and `{Path(recipe.init).name}`"
    parts.append(
        f"`{folder.RECIPE}` holds every setting. With {needed} in place, this {again}:\n\n"
        f"```sh\nregard train {_recipe_name(place, recipe)} --out again\n```"
    )
    if (place / CURVES).is_file():
        parts.append(f"![How the loss and other numbers went]({CURVES})")
    return "\n\n".join(parts)


def _limits(recipe: Recipe, languages: Sequence[str]) -> str:
    text = {Text: "text", Music: "music"}.get(type(recipe.data), "sentences")
    text = "text" if recipe.model.kind in LABELLING else text
    wrong = "It can be fluent and wrong: numbers, names and negations first. Let someone who knows read what matters."
    if recipe.model.kind in LABELLING:
        wrong = (
            "It chooses one of the labels it was trained with, always: also where none is right, and where its chances "
            "say that it does not know."
        )
    lines = [
        f"- It knows the kind of {text} it was trained on. On other subjects and styles it is worse, and does not "
        "say so.",
        f"- {wrong}",
        "- What is biased or private in the corpus may come out again. Nobody has checked it for that.",
    ]
    if len(languages) == 2 and not isinstance(recipe.data, Text | Music):
        lines.insert(0, f"- It reads `{languages[0]}` and writes `{languages[1]}`, and not the other way round.")
    return (
        "## Intended use and limits\n\nFor study and experiments, and for drafts that somebody checks.\n\n"
        + "\n".join(lines)
    )


def _licence(recipe: Recipe) -> str:
    whose = "the corpus" if recipe.init is None else f"the corpus, and at that of `{Path(recipe.init).name}`,"
    stated = recipe.licence or (
        f"Not stated. Whoever gives the model away has to look at the licence of {whose} first; "
        "`licence` in the recipe puts a licence here."
    )
    parts = [f"## Licence\n\n{stated}"]
    if recipe.attribution:
        parts.append("It learned from:\n\n" + "\n".join(f"- {source}" for source in recipe.attribution))
    return "\n\n".join(parts)


# ---- facts


def _verb(recipe: Recipe, languages: Sequence[str] = ()) -> str:
    """What the model is for; of two languages it is to translate, whatever else settings say."""
    if recipe.model.kind in LABELLING:
        return "classify" if recipe.model.kind == "classifier" else "tag"
    if recipe.model.kind == "bert":
        return "fill"
    match recipe.data:
        case Text():
            return "continue"
        case Music():
            return "compose"
        case Files() | Mixture() as data if len(languages) < 2:
            corpora = data.corpora if isinstance(data, Mixture) else [data]
            translated = [translates((each.source_language, each.target_language), each.filters) for each in corpora]
            return "translate" if any(translated) else "rewrite"
    return "translate"


def _corpus_name(recipe: Recipe) -> str:
    match recipe.data:
        case Generated() as data:
            return f"generated numbers, dates and times, {data.source} → {data.target}, seed {data.seed}"
        case Files() as data:
            return " + ".join(Path(place).name for place in (data.source, data.target) if place is not None)
        case Mixture() as data:
            return f"a mixture of {len(data.corpora)} corpora, temperature {data.temperature:g}"
        case Text() as data:
            return Path(data.text).name
        case Music() as data:
            return Path(data.music).name
        case Labelled() | Classes() | Tagged() | Restoring() as data:
            return f"{data.kind}: " + " + ".join(Path(place).name for place in place_of(data).split(" + "))
        case Elsewhere() as data:
            return f"unknown: imported from {data.origin}"


def _languages(recipe: Recipe, report: Mapping[str, Any]) -> list[str]:
    """As named in the recipe, as the names of files end, or as guessed from the corpus; source first."""
    match recipe.data:
        case Generated() as data:
            named: list[str | None] = [data.source, data.target]
        case Files() as data:
            named = _of_all([data])
        case Mixture() as data:
            named = _of_all(data.corpora)
        case Text() as data:
            named = [data.language]
        case Music() | Labelled() | Classes() | Tagged() | Restoring() | Elsewhere():
            named = []
    guesses = report.get("languages") or {}
    if not all(named) and len(guesses) >= 2 and len(named) == 2:
        found = [guesses.get(f"train {side}") for side in ("source", "target")]
        named = [name or (guess or {}).get("language") for name, guess in zip(named, found, strict=True)]
    return list(dict.fromkeys(name for name in named if name))


def _of_all(corpora: Sequence[Files]) -> list[str | None]:
    """Source and target, where corpora agree as far as they tell; else all that settings name, in no order."""
    told = [(each.source_language, each.target_language) for each in corpora]
    sources, targets = (
        {side for side in sides if side} for sides in zip(*(each.languages for each in corpora), strict=True)
    )
    if len(sources) <= 1 and len(targets) <= 1:
        return [next(iter(sources), None), next(iter(targets), None)]
    several = [*dict.fromkeys(side for pair in told for side in pair if side)]
    return [*several] if len(several) > 2 else []  # two would be read as from the one to the other


def _checksums(recipe: Recipe) -> Iterator[tuple[str, str, str]]:
    for file in open_corpus(recipe.data).origin().files:
        if file.is_file():
            with file.open("rb") as stream:
                yield file.name, f"{file.stat().st_size:,}", f"`{hashlib.file_digest(stream, 'sha256').hexdigest()}`"


def _sizes(recipe: Recipe) -> str:
    model = recipe.model
    if isinstance(model, TransformerSettings):
        return (
            f"{model.encoder_layers} + {model.decoder_layers} layers, d_model {model.d_model}, d_ff {model.d_ff}, "
            f"{so_many(model.heads, 'head')}, dropout {model.dropout}, {model.norm}-norm"
        )
    return ", ".join(f"{name} {text_of(value)}" for name, value in vars(model).items() if value is not None)


def _recipe_name(place: Path, recipe: Recipe) -> str:
    """What `regard train` takes: a preset by its name, which is known in every folder, and any other by its file."""
    if recipe.name in presets() and load_recipe(recipe.name) == recipe:
        return recipe.name
    return f"{shlex.quote(place.resolve().name)}/{folder.RECIPE}"


def _seconds(events: Sequence[Event]) -> float:
    """How long all parts of the run took: in each of them, `seconds` counts from its start."""
    total, last = 0.0, 0.0
    for event in events:
        if event.get("event") == START:
            total, last = total + last, 0.0
        last = max(last, event.get("seconds") or 0.0)
    return total + last


def _by_clock(recipe: Recipe, events: Sequence[Event]) -> str:
    """How far the rate had fallen that followed the clock; nothing where it followed the steps."""
    minutes = recipe.training.minutes
    if not recipe.training.by_clock or minutes is None:
        return ""
    progress = [event["progress"] for event in events if event.get("progress") is not None]
    reached = f" ({100 * progress[-1]:.1f} % of the way done)" if progress else ""
    return f"; the rate followed the clock, to its end after {clock(60 * minutes)}{reached}"


def _changes(starts: Sequence[Event]) -> list[Event]:
    """Those starts that were not on the same machine with the same versions as the one before."""

    def where(event: Event) -> tuple[object, ...]:
        return tuple(event.get(key) for key in ("machine", "processes", "torch", "python"))

    return [event for before, event in zip([{}, *starts], starts, strict=False) if where(before) != where(event)]


# ---- forms


def _yaml(text: str) -> str:
    """A string of YAML: every JSON string is one."""
    return json.dumps(text, ensure_ascii=False)


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [titles, ["---"] * len(titles), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
