"""The two sides of a proof: a model behind our interface, a folder in transformers; and what both are asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from regard.batch import Batch, Specials, Tokens
from regard.data.corpus import open_corpus
from regard.decoding.constraints import Constraints
from regard.decoding.fast import search as find
from regard.decoding.search import SearchSettings
from regard.errors import RegardError
from regard.folder import Loaded
from regard.models.interface import SequenceModel
from regard.verification import random_texts

ROWS, EXTRA, PROMPT = 16, 30, 8


@dataclass(frozen=True)
class Inputs:
    """What both sides are asked: sources with their end, or prompts that begin with the start."""

    texts: Sequence[Sequence[int]]
    translates: bool
    specials: Specials
    references: Sequence[str] = ()
    """What somebody else wrote for each text; empty where nobody did."""
    invented: bool = False
    """Whether there was no text, so that random tokens stand for it."""

    @property
    def notes(self) -> list[str]:
        """What has to be known of them."""
        return ["texts: none were found, so these are random tokens; name real ones with --texts FILE"] * self.invented


Written = tuple[int, ...]
"""What a side wrote for one text, without start and end."""


class Side(Protocol):
    """Somebody who can be asked."""

    @property
    def name(self) -> str:
        """As the table calls it."""
        ...

    @property
    def folder(self) -> Path | None:
        """Where its weights are."""
        ...

    def scores(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[Tensor] | None:
        """At each place of each target what every token scores, [T, V]; None if it does not tell."""
        ...

    def write(self, inputs: Inputs, beam: int) -> list[Written]:
        """The best text for each input."""
        ...


def settings_for(inputs: Inputs, beam: int) -> SearchSettings:
    """How all sides search."""
    # Of a text that goes on from a prompt, ours counts the prompt, too: without a penalty that makes no difference.
    return SearchSettings(beam=beam, penalty="length" if inputs.translates else "none", extra_length=EXTRA)


@dataclass(frozen=True)
class ModelSide:
    """A model behind our interface, whichever engine runs it."""

    name: str
    model: SequenceModel[Any]
    folder: Path | None = None

    def scores(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[Tensor] | None:
        """At each place of each target what every token scores."""
        target = Tokens.padded(targets, 0)
        source = Tokens.padded(sources, 0) if self.model.reads_source else None
        scores_BTV = self.model(Batch(source, target, target.ids_BT))
        return [scores_TV[: len(text)] for scores_TV, text in zip(scores_BTV, targets, strict=True)]

    def write(self, inputs: Inputs, beam: int) -> list[Written]:
        """The best text for each input."""
        settings = settings_for(inputs, beam)
        found: list[Written] = []
        for first in range(0, len(inputs.texts), ROWS):
            some = inputs.texts[first : first + ROWS]
            source, constraints = None, None
            if inputs.translates:
                source = Tokens.padded(some, inputs.specials.padding)
            else:
                constraints = [Constraints(prefix=tuple(prompt[1:])) for prompt in some]
            answers = find(self.model, source, inputs.specials, settings, constraints)
            for prompt, (best, *_) in zip(some, answers, strict=True):
                skipped = 0 if inputs.translates else len(prompt) - 1
                found.append(best.tokens[skipped:])
        return found


class TransformersSide:
    """A folder in transformers, loaded as anybody would load it."""

    def __init__(self, folder: Path, translates: bool) -> None:
        import transformers

        self.name, self.folder = "transformers", folder
        kind: Any = transformers.AutoModelForSeq2SeqLM if translates else transformers.AutoModelForCausalLM
        self.model: Any = kind.from_pretrained(folder, dtype=torch.float32, local_files_only=True).eval()
        self.translates = translates

    def scores(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[Tensor] | None:
        """At each place of each target what every token scores."""
        target = Tokens.padded(targets, 0)
        real = target.places.segments_or_ones()
        if self.translates:
            source = Tokens.padded(sources, 0)
            found = self.model(input_ids=source.ids_BT, attention_mask=source.places.segments_or_ones(),
                               decoder_input_ids=target.ids_BT)  # fmt: skip
        else:
            found = self.model(input_ids=target.ids_BT, attention_mask=real)
        return [scores_TV[: len(text)] for scores_TV, text in zip(found.logits, targets, strict=True)]

    def write(self, inputs: Inputs, beam: int) -> list[Written]:
        """The best text for each input."""
        found: dict[int, Written] = {}
        for numbers in self._groups(inputs):
            some = Tokens.padded([inputs.texts[number] for number in numbers], inputs.specials.padding)
            before = 1 if inputs.translates else some.ids_BT.shape[1]
            # A source may get so many tokens longer, its end counted; a prompt goes on for so many.
            limits = [EXTRA + (len(inputs.texts[number]) if inputs.translates else 0) for number in numbers]
            texts = self._generate(some, inputs, beam, before, limits)
            for number, text in zip(numbers, texts.tolist(), strict=True):
                ended = [place for place in range(before, len(text)) if text[place] == inputs.specials.end]
                found[number] = tuple(text[before : ended[0] if ended else None])
        return [found[number] for number in range(len(inputs.texts))]

    def _groups(self, inputs: Inputs) -> list[list[int]]:
        """Texts that share a batch; prompts only with others of their length, so that none is padded."""
        if inputs.translates:
            everything = list(range(len(inputs.texts)))
            return [everything[first : first + ROWS] for first in range(0, len(everything), ROWS)]
        groups: dict[int, list[int]] = {}
        for number, text in enumerate(inputs.texts):
            groups.setdefault(len(text), []).append(number)
        return list(groups.values())

    def _generate(self, some: Tokens, inputs: Inputs, beam: int, before: int, limits: Sequence[int]) -> Tensor:
        specials = inputs.specials
        penalty = SearchSettings().alpha if inputs.translates else 0.0
        options: dict[str, Any] = {"length_penalty": penalty, "early_stopping": "never"} if beam > 1 else {}
        never = sorted(specials.unwritten)
        if inputs.translates:
            options["decoder_start_token_id"] = specials.start
        # What the folder says of its own accord must not come between.
        config = self.model.generation_config
        config.forced_eos_token_id = config.bad_words_ids = config.max_length = None

        def end_at_limit(ids_RT: Tensor, scores_RV: Tensor) -> Tensor:
            """As ours: at its limit a text can only end, with the score that has."""
            at_R = torch.tensor(limits).repeat_interleave(len(ids_RT) // len(limits)) <= ids_RT.shape[1] - before
            others_V = torch.arange(scores_RV.shape[1]) != specials.end
            return scores_RV.masked_fill(at_R[:, None] & others_V, -torch.inf)

        texts: Tensor = self.model.generate(
            input_ids=some.ids_BT, attention_mask=some.places.segments_or_ones(), num_beams=beam, do_sample=False,
            max_new_tokens=max(limits) + 1, suppress_tokens=never or None, eos_token_id=specials.end,
            pad_token_id=specials.padding, logits_processor=[end_at_limit], **options,
        )  # fmt: skip
        return texts


# ---- what is asked


def inputs_for(loaded: Loaded, texts: Sequence[str] | None, count: int) -> Inputs:
    """`count` real inputs: of these texts, or of the model's own corpus, or random tokens where neither is there."""
    tokenizer, specials = loaded.tokenizer, loaded.tokenizer.specials
    translates = loaded.model.reads_source
    reader = tokenizer.source if translates else tokenizer
    found = _own_texts(loaded, count) if texts is None else [(text, None) for text in texts]
    room = None if loaded.model.context is None else loaded.model.context - EXTRA - 2
    found = [pair for pair in found if pair[0].strip()][:count]
    pairs = [(ids, right) for ids, (_, right) in zip(reader.encode_all([text for text, _ in found]), found, strict=True)
             if ids]  # fmt: skip
    encoded = [ids for ids, _ in pairs]
    references = [right for _, right in pairs if right is not None]
    invented = not encoded
    if invented:
        encoded = random_texts(reader.size, specials, count, room, loaded.recipe.seed)
    if translates:
        tag = sorted(reader.languages.values())[:1]
        return Inputs([[*tag, *ids[:room], specials.end] for ids in encoded], True, specials, references, invented)
    return Inputs([[specials.start, *ids[:PROMPT]] for ids in encoded], False, specials, invented=invented)


def _own_texts(loaded: Loaded, count: int) -> list[tuple[str, str | None]]:
    """Sources with their translations, or texts for themselves."""
    try:
        corpus = open_corpus(loaded.recipe.data)
        pairs = corpus.test() or corpus.valid()
    except (RegardError, OSError):
        return []
    if not loaded.model.reads_source:
        return [(pair.target, None) for pair in pairs[:count]]
    return [(pair.source, pair.target) for pair in pairs[:count]]
