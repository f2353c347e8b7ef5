"""torch.nn.Transformer's state dictionaries, against the module itself."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from regard.batch import Batch, Tokens
from regard.errors import DataError
from regard.interop import reading
from regard.interop.weights import waves
from regard.text.tokenizer import Tokenizer, TokenizerSettings
from tests.tiny import ENGLISH, GERMAN

pytestmark = pytest.mark.filterwarnings("ignore:enable_nested_tensor")


class Program(nn.Module):
    """What somebody puts around torch's Transformer."""

    def __init__(self, vocabulary: int, norm_first: bool) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, 24)
        self.read = nn.Embedding(vocabulary, 24)
        self.transformer = nn.Transformer(24, 3, 2, 3, 40, norm_first=norm_first, batch_first=True, activation="gelu")
        self.generator = nn.Linear(24, vocabulary)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        x, y = (
            table(ids) * 24**0.5 + waves(ids.shape[1], 24) for table, ids in ((self.read, source), (self.embed, target))
        )
        mask = nn.Transformer.generate_square_subsequent_mask(target.shape[1])
        found: Tensor = self.generator(self.transformer(x, y, tgt_mask=mask))
        return found


def folder(place: Path, norm_first: bool, file: str = "model.pt") -> Program:
    torch.manual_seed(1)
    tokenizer = Tokenizer.learn([*ENGLISH, *GERMAN], TokenizerSettings(vocabulary=80))
    program = Program(tokenizer.size, norm_first).eval()
    for weight in program.parameters():
        weight.data.add_(0.1 * torch.randn_like(weight))
    state = {name: weight.detach().clone() for name, weight in program.state_dict().items()}
    if file.endswith(".pt"):
        torch.save(state, place / file)
    else:
        save_file(state, place / file)
    (place / "tokenizer.json").write_text(tokenizer.to_json(), encoding="utf-8")
    (place / "torch.toml").write_text(
        f'weights = "{file}"\nheads = 3\nprefix = "transformer."\nsource_embedding = "read.weight"\n'
        'target_embedding = "embed.weight"\noutput = "generator.weight"\noutput_bias = "generator.bias"\n'
        f'activation = "gelu"\nnorm_first = {str(norm_first).lower()}\ntokenizer = "tokenizer.json"\n'
    )
    return program


@pytest.mark.parametrize("file", ["model.pt", "model.safetensors"])
@pytest.mark.parametrize("norm_first", [False, True])
@torch.inference_mode()
def test_scores_are_those_of_the_program(norm_first: bool, file: str, tmp_path: Path) -> None:
    program = folder(tmp_path, norm_first, file)
    loaded = reading.read(tmp_path)
    source, target = torch.randint(60, (3, 7)), torch.randint(60, (3, 5))
    found = loaded.model(Batch(Tokens.whole(source), Tokens.whole(target), target))
    torch.testing.assert_close(found, program(source, target), atol=1e-4, rtol=0)


def test_what_is_left_over_is_named(tmp_path: Path) -> None:
    folder(tmp_path, False)
    told = (tmp_path / "torch.toml").read_text().replace('output_bias = "generator.bias"\n', "")
    (tmp_path / "torch.toml").write_text(told)
    with pytest.raises(DataError, match=r"1 unused: generator\.bias"):
        reading.read(tmp_path)
    (tmp_path / "torch.toml").write_text(told + 'ignore = ["generator.bias"]\n')
    reading.read(tmp_path)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('heads = "3"', "heads` must be a int"),
        ("hedas = 3", "`hedas` is not known"),
        ("heads = 5", "must be a multiple of `heads`"),
        ('prefix = "other."', "Correct `prefix`"),
        ('weights = "../secret.pt"', "must name files of its folder"),
    ],
)
def test_a_wrong_description_is_refused(line: str, words: str, tmp_path: Path) -> None:
    folder(tmp_path, False)
    key = line.partition(" ")[0]
    kept = [each for each in (tmp_path / "torch.toml").read_text().split("\n") if not each.startswith(f"{key} ")]
    (tmp_path / "torch.toml").write_text("\n".join([line, *kept]))
    with pytest.raises(DataError, match=words):
        reading.read(tmp_path)
