"""Phrases that a text must contain: the beams are shared out by how much of them is written.

Shapes: B sentences, N beams, C candidates, L longest text, V vocabulary, K phrases, G groups of phrases, M longest
phrase, W windows.

A text with a rare word in it is less likely than one without, so a plain beam would drop it before the word is whole.
As in dynamic beam allocation (Post and Vilar 2018), candidates are sorted into banks by the number of required tokens
they have written. Where one of several phrases is enough, these are the tokens of the shortest, less those that are
still to come. The best of each bank comes first, fullest bank foremost, then the second best of each, and so on.
The fullest text always gets its next required token as a candidate, so that one is complete after as many steps as
there are required tokens, if nothing else forbids them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from regard.decoding.beams import Candidates
from regard.decoding.constraints import NOTHING, Phrases, fits, flush_right, tail


@dataclass(frozen=True)
class Required:
    """The required phrases of each sentence, ending together and beginning together, and the groups they form."""

    ending_BKM: Tensor
    beginning_BKM: Tensor
    lengths_BK: Tensor
    members_BKG: Tensor  # whether a phrase is of a group
    fewest_BG: Tensor  # tokens of a group's shortest phrase; 0 for missing groups
    longer_BK: Tensor  # by how many tokens a phrase is longer than the shortest of its group
    end: int

    @classmethod
    def of(cls, groups: Sequence[tuple[Phrases, ...]], end: int, device: torch.device) -> Required:
        """One list of groups a sentence; of each group one phrase is to be written."""
        ending_BKM = flush_right([tuple(phrase for group in some for phrase in group) for some in groups], device)
        beginning = torch.full(ending_BKM.shape, NOTHING)
        lengths = torch.zeros(ending_BKM.shape[:2], dtype=torch.long)
        members = torch.zeros(*ending_BKM.shape[:2], max(map(len, groups)), dtype=torch.bool)
        fewest, longer = torch.zeros_like(members[:, 0], dtype=torch.long), torch.zeros_like(lengths)
        for row, some in enumerate(groups):
            for number, group in enumerate(some):
                fewest[row, number] = min(map(len, group))
            phrases = [(number, phrase) for number, group in enumerate(some) for phrase in group]
            for place, (number, phrase) in enumerate(phrases):
                beginning[row, place, : len(phrase)] = torch.tensor(phrase)
                lengths[row, place] = len(phrase)
                members[row, place, number] = True
                longer[row, place] = len(phrase) - fewest[row, number]
        beginning, lengths, members = beginning.to(device), lengths.to(device), members.to(device)
        return cls(ending_BKM, beginning, lengths, members, fewest.to(device), longer.to(device), end)

    def forbid(self, next_BNV: Tensor, written_BNL: Tensor, length: int) -> None:
        """Forbid the end while a phrase is missing."""
        missing_BN = ~self._met(written_BNL[:, :, : length - 1])[0].all(dim=-1)
        next_BNV[:, :, self.end].masked_fill_(missing_BN, -torch.inf)

    def select(self, rows: Tensor) -> Required:
        """The phrases of these sentences."""
        return replace(
            self,
            ending_BKM=self.ending_BKM[rows],
            beginning_BKM=self.beginning_BKM[rows],
            lengths_BK=self.lengths_BK[rows],
            members_BKG=self.members_BKG[rows],
            fewest_BG=self.fewest_BG[rows],
            longer_BK=self.longer_BK[rows],
        )

    def arrange(
        self, candidates: Candidates, scores_BN: Tensor, next_BNV: Tensor, written_BNL: Tensor, length: int
    ) -> Candidates:
        """The candidates and those that write a required token, shared out over the banks."""
        candidates = self._with_needed(candidates, scores_BN, next_BNV, written_BNL[:, :, : length - 1])
        texts_BCL = written_BNL.gather(1, candidates.beam_BC[:, :, None].expand(-1, -1, written_BNL.shape[2]))
        texts_BCL[:, :, length - 1] = candidates.token_BC
        bank_BC = self._bank(texts_BCL[:, :, :length])

        _, by_score_BC = candidates.scores_BC.sort(dim=1, descending=True, stable=True)
        candidates, bank_BC = candidates.take(by_score_BC), bank_BC.gather(1, by_score_BC)
        banks = int(self.fewest_BG.shape[1] * self.beginning_BKM.shape[2]) + 1
        before_BCK = torch.nn.functional.one_hot(bank_BC, banks).cumsum(dim=1)
        rank_BC = before_BCK.gather(2, bank_BC[:, :, None])[:, :, 0]
        turn_BC = rank_BC * banks - bank_BC
        turn_BC = torch.where(candidates.scores_BC == -torch.inf, turn_BC.max() + 1, turn_BC)
        _, by_turn_BC = turn_BC.sort(dim=1, stable=True)
        return candidates.take(by_turn_BC)

    def _with_needed(
        self, candidates: Candidates, scores_BN: Tensor, next_BNV: Tensor, written_BNL: Tensor
    ) -> Candidates:
        """The candidates, and for each beam the next token of every phrase it lacks; none twice."""
        begun_BNK = self._begun(written_BNL)
        phrases_BNKM = self.beginning_BKM[:, None].expand(-1, begun_BNK.shape[1], -1, -1)
        token_BNK = phrases_BNKM.gather(3, begun_BNK[..., None])[..., 0]
        useless_BNK = self._met(written_BNL)[1] | (token_BNK == NOTHING)
        token_BNK = token_BNK.clamp(min=0)
        totals_BNK = scores_BN[:, :, None] + next_BNV.gather(2, token_BNK)
        totals_BNK = totals_BNK.masked_fill(useless_BNK, -torch.inf)
        beam_BNK = torch.arange(scores_BN.shape[1], device=scores_BN.device)[:, None].expand_as(token_BNK)

        scores_BC = torch.cat([candidates.scores_BC, totals_BNK.flatten(1)], dim=1)
        beam_BC = torch.cat([candidates.beam_BC, beam_BNK.flatten(1)], dim=1)
        token_BC = torch.cat([candidates.token_BC, token_BNK.flatten(1)], dim=1)
        name_BC = beam_BC * next_BNV.shape[2] + token_BC
        named_BCC = (name_BC[:, :, None] == name_BC[:, None, :]) & (scores_BC != -torch.inf)[:, None, :]
        twice_BC = named_BCC.tril(diagonal=-1).any(dim=2)
        return Candidates(scores_BC.masked_fill(twice_BC, -torch.inf), beam_BC, token_BC)

    def _bank(self, texts_BCL: Tensor) -> Tensor:
        """How many required tokens are written: those of groups that are met, and of the one that is farthest along."""
        met_BCG, met_BCK = self._met(texts_BCL)
        whole_BC = (met_BCG * self.fewest_BG[:, None]).sum(dim=-1)
        ahead_BCK = (self._begun(texts_BCL) - self.longer_BK[:, None]).clamp(min=0)
        return whole_BC + (ahead_BCK * ~met_BCK).amax(dim=-1)

    def _met(self, texts_BCL: Tensor) -> tuple[Tensor, Tensor]:
        """Which groups have a phrase in which text, [B, C, G], and which phrases are of such a group, [B, C, K].

        Missing groups and phrases count as met.
        """
        size = self.ending_BKM.shape[2]
        padded = torch.nn.functional.pad(texts_BCL, (size, 0), value=NOTHING)
        windows_BCWM = padded.unfold(2, size, 1)
        found_BCK = fits(windows_BCWM[:, :, :, None], self.ending_BKM[:, None, None]).any(dim=2)
        members_BCKG = self.members_BKG[:, None]
        met_BCG = (found_BCK[..., None] & members_BCKG).any(dim=2) | ~members_BCKG.any(dim=2)
        return met_BCG, (met_BCG[:, :, None] | ~members_BCKG).all(dim=3)

    def _begun(self, texts_BCL: Tensor) -> Tensor:
        """How many tokens at the end of each text begin each phrase, the whole phrase not among them: [B, C, K]."""
        begun_BCK = texts_BCL.new_zeros(*texts_BCL.shape[:2], self.lengths_BK.shape[1])
        for size in range(1, self.beginning_BKM.shape[2]):
            begins_BCK = fits(tail(texts_BCL, size)[:, :, None], self.beginning_BKM[:, None, :, :size])
            begun_BCK = torch.where(begins_BCK & (self.lengths_BK > size)[:, None], size, begun_BCK)
        return begun_BCK
