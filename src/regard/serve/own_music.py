"""`/api/music`: a piece by a model of music, its notes, its MIDI file, and which notes looked at which."""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
from typing import Annotated, Any

from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict, Field

from regard.api import Model
from regard.decoding.sampling import SamplingSettings
from regard.errors import UsageError
from regard.exploring import composing
from regard.serve.desk import Desk, Served
from regard.serve.limits import Limits
from regard.serve.own import ERRORS
from regard.text.tokenizer import MusicEvents


class MusicBody(BaseModel):
    """A piece to write."""

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)

    model: Annotated[
        str | None, Field(max_length=200, description="Which model; unless given, the first that writes music.")
    ] = None
    primer: Annotated[str | None, Field(description="A MIDI file in base64, whose music is to go on.")] = None
    max_tokens: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    temperature: Annotated[float, Field(ge=0, le=100)] = 1.0
    top_k: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    seed: Annotated[int, Field(ge=0, lt=2**53)] = 1
    layer: Annotated[int, Field(ge=0, le=1_000, description="Unless given, the last.")] | None = None


class NoteLines(BaseModel):
    """What one layer looked at: [note, note looked at, head, weight] each, counted from 0."""

    layer: int
    layers: int
    heads: int
    lines: list[tuple[int, int, int, float]]


class MusicAnswer(BaseModel):
    """A piece: its notes as [start, duration, pitch, velocity] in seconds, and which of them the primer began."""

    notes: list[tuple[float, float, int, int]]
    primed: list[int]
    midi: str
    words: int
    finish_reason: str
    seed: int
    attention: NoteLines | None


def router(desk: Desk, limits: Limits) -> APIRouter:
    """The route."""
    routes = APIRouter(prefix="/api", tags=["own"], responses=ERRORS)

    @routes.post("/music", summary="Write a piece of music", responses={200: {"model": MusicAnswer}})
    async def music(body: MusicBody) -> Response:
        served = _find(desk, body.model)
        most = limits.tokens if body.max_tokens is None else body.max_tokens
        limits.check_writing(most)
        sampling = SamplingSettings(body.temperature, body.top_k, body.top_p, max_tokens=most)
        # In a thread of its own: to read a file takes a while, and does not need the model.
        primer = await asyncio.to_thread(composing.primer_of, served.model, _midi(body.primer))
        ((written,),) = await desk.generate(served.id, [primer.text], sampling, body.seed)
        piece = composing.composed(served.model, primer, written, body.seed)
        seen = await desk.run(served.id, lambda model: _attention(model, piece, body.layer))
        answer = {**piece.to_json(), "attention": seen}
        return Response(json.dumps(answer, separators=(",", ":")), media_type="application/json")

    return routes


def _find(desk: Desk, name: str | None) -> Served:
    """The model of this name, or the first that writes music."""
    if name is None:
        able = [one for one in desk.models.values() if isinstance(one.model.recipe.tokenizer, MusicEvents)]
        if not able:
            raise UsageError("model: needs one that writes music, but none here does. See the list of models.")
        return able[0]
    served = desk.find(name)
    composing.encoding_of(served.model, "model")
    return served


def _midi(primer: str | None) -> bytes | None:
    try:
        return None if primer is None else base64.b64decode(primer, validate=True)
    except (binascii.Error, ValueError) as error:
        raise UsageError("primer: must be a MIDI file in base64, but is not. Encode its bytes.") from error


def _attention(model: Model, piece: composing.Composition, layer: int | None) -> dict[str, Any] | None:
    if not piece.piece.notes or model.recipe.model.kind != "gpt":
        return None
    return composing.note_attention(model, piece, -1 if layer is None else layer).to_json()
