"""`/api/classify` and `/api/tag`: the label of a text, or of each of its words, with the chances of all labels."""

from __future__ import annotations

import json
from typing import Any, Literal

from fastapi import APIRouter, Response
from pydantic import BaseModel

from regard.api import Model
from regard.serve.bodies import Body
from regard.serve.desk import Desk
from regard.serve.limits import Limits
from regard.serve.own import ERRORS
from regard.text.restoring import restored

MOST = 12  # labels of a word that are told


class LabelBody(Body):
    """A text to label."""


class ChoiceAnswer(BaseModel):
    """The likeliest label, and the probability of each, the likeliest first."""

    label: str
    probability: float
    probabilities: dict[str, float]


class WordAnswer(BaseModel):
    """A word, its likeliest label, and the probabilities of the likeliest, at most 12."""

    word: str
    label: str
    probability: float
    probabilities: dict[str, float]


class TagAnswer(BaseModel):
    """The words with their labels, and the text that they make, where the labels are capitals and punctuation."""

    words: list[WordAnswer]
    restored: str | None


def router(desk: Desk, limits: Limits) -> APIRouter:
    """The routes."""
    routes = APIRouter(prefix="/api", tags=["own"], responses=ERRORS)

    @routes.post("/classify", summary="Give a text a label", responses={200: {"model": ChoiceAnswer}})
    async def classify(body: LabelBody) -> Response:
        return await _answer(desk, limits, body, "classify")

    @routes.post("/tag", summary="Give each word a label", responses={200: {"model": TagAnswer}})
    async def tag(body: LabelBody) -> Response:
        return await _answer(desk, limits, body, "tag")

    return routes


async def _answer(desk: Desk, limits: Limits, body: LabelBody, task: Literal["classify", "tag"]) -> Response:
    limits.check_text(body.text)
    served = desk.find(body.model, task)
    ask = _classified if task == "classify" else _tagged
    found = await desk.run(served.id, lambda model: ask(model, body.text))
    return Response(json.dumps(found, ensure_ascii=False, separators=(",", ":")), media_type="application/json")


def _classified(model: Model, text: str) -> dict[str, Any]:
    (found,) = model.classify([text])
    return found.to_json()


def _tagged(model: Model, text: str) -> dict[str, Any]:
    (found,) = model.tag([text])
    whole = restored(found.words, found.tags) if model.labeller.restores else None
    # A text of a thousand words must not become an answer of a thousand times all labels.
    return {**found.to_json(MOST), "restored": whole}
