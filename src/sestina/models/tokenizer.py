"""Text to tokens and back, by a `tokenizers` file beside the model."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Regex, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as Backend

from sestina.core.errors import ModelError
from sestina.core.units import TokenArray

FILE = "tokenizer.json"
SETTINGS = "tokenizer_config.json"
TEMPLATE = "chat_template.jinja"
FILES = (FILE, SETTINGS, TEMPLATE)
"""What belongs beside the weights, as far as it exists."""


class Tokenizer:
    """Encodes prompts and decodes responses of one model directory.

    Raises ModelError from the constructor when tokenizer.json or tokenizer_config.json is missing or malformed, or when
    the model's embedding has fewer rows than the tokenizer has tokens.
    """

    def __init__(self, directory: Path, *, model_vocab_size: int) -> None:
        self._directory = directory
        self._settings = _read_settings(directory / SETTINGS)
        self._backend = _read_backend(directory / FILE)
        size = self._backend.get_vocab_size(with_added_tokens=True)
        if size > model_vocab_size:
            raise ModelError(f"{directory}: the tokenizer has {size} tokens, the model's vocabulary {model_vocab_size}")
        self.eos_id = self._eos_id()

    def encode(self, text: str) -> TokenArray:
        """Return the tokens of `text`, no special tokens added; raises ModelError when a character is unknown."""
        encoding = self._backend.encode(text, add_special_tokens=False)
        unknown = self._backend.token_to_id("<unk>")
        if unknown is not None and unknown in encoding.ids:
            start, end = encoding.offsets[encoding.ids.index(unknown)]
            raise ModelError(f"{self._directory}: the tokenizer does not know {text[start:end]!r} of {text!r}")
        return np.array(encoding.ids, np.int32)

    def decode(self, tokens: TokenArray) -> str:
        """Return the text of `tokens` without special tokens."""
        return self._backend.decode(tokens.tolist(), skip_special_tokens=True)

    def render(self, messages: Sequence[Mapping[str, str]]) -> str:
        """Return a chat as the text this model expects; raises ModelError when it has no chat template."""
        if "chat_template" not in self._settings and not (self._directory / TEMPLATE).exists():
            raise ModelError(f"{self._directory}: prompts are chats but {SETTINGS} has no chat_template")
        from transformers import AutoTokenizer  # noqa: PLC0415 - seconds to import, needed for chats alone

        hf = AutoTokenizer.from_pretrained(self._directory, local_files_only=True)
        return str(hf.apply_chat_template(list(messages), tokenize=False, add_generation_prompt=True))

    def _eos_id(self) -> int:
        eos = self._settings.get("eos_token")
        content = eos.get("content") if isinstance(eos, dict) else eos
        token = self._backend.token_to_id(content) if isinstance(content, str) else None
        if token is None:
            raise ModelError(f"{self._directory / SETTINGS}: eos_token is {eos!r}, which {FILE} does not hold")
        return token


def write_character_tokenizer(directory: Path, alphabet: str) -> None:
    """Write a tokenizer with one token per character, after `<pad>`, `<eos>` and `<unk>`."""
    vocab = {token: i for i, token in enumerate(["<pad>", "<eos>", "<unk>", *alphabet])}
    backend = Backend(models.WordLevel(vocab, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Split(Regex("."), behavior="isolated")
    backend.add_special_tokens(["<pad>", "<eos>", "<unk>"])
    backend.decoder = decoders.Fuse()
    directory.mkdir(parents=True, exist_ok=True)
    backend.save(str(directory / FILE))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<eos>", "pad_token": "<pad>"}
    (directory / SETTINGS).write_text(json.dumps(settings, indent=2) + "\n")


def _read_settings(path: Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        raise ModelError(f"{path}: no such file; it names the end-of-sequence token") from None
    except ValueError as error:
        raise ModelError(f"{path}: not JSON: {error}") from None


def _read_backend(path: Path) -> Backend:
    if not path.exists():
        raise ModelError(f"{path}: no such file")
    try:
        return Backend.from_file(str(path))
    except Exception as error:  # noqa: BLE001 - the library raises bare Exception for malformed files
        raise ModelError(f"{path}: not a tokenizers file: {error}") from None
