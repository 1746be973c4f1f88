"""Where the weights of an engine's model are: on their device, set aside in host memory, or dropped."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from .config import EngineConfig
from .errors import ConfigError, ModelLoadError
from .host_copy import HostCopy
from .loaded import LoadedModel
from .loader import read_source
from .memory import free_memory, gib
from .models.packed import PackedLinear
from .models.weights import first_line
from .sleep import Freed

if TYPE_CHECKING:
    from torch import Tensor

HOST = torch.device("cpu")
OURS = "they belong to the model object that was handed in"
ON_CPU = "they are in host memory already"
FIXED = (
    "tier", "chunks_prefill", "dtype", "device", "kv_layout", "vocab_size", "max_model_len", "eos_token_ids",
)  # fmt: skip
"""What queue, pool and requests rest on: a model that was read again has to agree in it."""


class ModelWeights:
    """Belongs to the engine's thread. `prepare` may fail and changes nothing that is in use; `give` does not fail.

    After `take` the weights are there, and what they came from is kept until `settle`, so that `give` can undo it.
    """

    def __init__(self, loaded: LoadedModel, config: EngineConfig) -> None:
        self.loaded, self._config = loaded, config
        self._hf_tokenizer = loaded.hf_tokenizer
        self._source = loaded.source and replace(loaded.source, folder=loaded.source.folder.absolute())
        self._copy: HostCopy | None = None
        self._level = 0
        found = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in self._all()}
        packed = (part.nbytes for part in loaded.model.modules() if isinstance(part, PackedLinear))
        self.nbytes = sum(found.values()) + sum(packed)

    def prepare(self, level: int) -> None:
        """Make ready to give.

        Raises:
            ConfigError: level 2, and there are no files to read the weights from again.
            ModelLoadError: level 1, and the host has no memory for them.
        """
        if level == 2 and self._source is None:
            raise ConfigError(f"sleep: level=2 drops the weights, and {OURS}: drop that yourself, or take level 1")
        if level == 1 and self._moves:
            free = free_memory(HOST)
            if self.nbytes > free:
                raise ModelLoadError(
                    f"the weights need {gib(self.nbytes)} of host memory, and {gib(free)} are free: "
                    "level 2 drops them instead"
                )
            try:
                self._copy = HostCopy(self._all())
            except (RuntimeError, MemoryError) as error:
                raise ModelLoadError(f"the weights do not fit into host memory ({first_line(error)})") from error

    def give(self, level: int) -> Freed:
        """Let the weights go, as far as `level` says."""
        before, self._level = self._level, level
        if level == 2:
            if self.loaded.fused is not None:
                self.loaded.fused.restore()
            self._copy = None
            self.loaded.close()
            return Freed(weight_bytes=self.nbytes, weights="dropped")
        if self._copy is None:
            return Freed(why=OURS if self._source is None else ON_CPU)
        self._copy.release()
        return Freed(weight_bytes=0 if before else self.nbytes, weights="host")

    def give_again(self) -> None:
        """Undo `take`, or what it has done until it raised."""
        self.give(self._level)

    def take(self) -> LoadedModel | None:
        """Have the weights again; the model, where it was read anew.

        Raises:
            ModelLoadError: the files are not what they were, or cannot be read.
            RuntimeError: no memory on the device.
        """
        if self._copy is not None:
            self._copy.restore()
        if self._level != 2 or self._source is None:
            return None
        self.loaded = self._same(read_source(self._config, self._source, self._hf_tokenizer))
        return self.loaded

    def settle(self) -> None:
        """All that belongs to waking went well."""
        self._copy, self._level = None, 0

    @property
    def missing(self) -> int:
        """Bytes that `take` will ask the device for."""
        return self.nbytes if self._level == 2 or self._copy is not None else 0

    @property
    def _moves(self) -> bool:
        """Whether level 1 moves them: off a GPU, if they are ours alone."""
        return self.loaded.device.type == "cuda" and self._source is not None and self._level == 0

    def _all(self) -> list[Tensor]:
        model = self.loaded.model
        return [*model.parameters(), *model.buffers()]

    def _same(self, new: LoadedModel) -> LoadedModel:
        """The model that was read again, if it is the one that was dropped."""
        old, why = self.loaded, ""
        if new.fingerprint != old.fingerprint:
            why = f"its files have changed since it was loaded (fingerprint {new.fingerprint}, not {old.fingerprint})"
        elif other := [name for name in FIXED if getattr(new, name) != getattr(old, name)]:
            why = f"it would be served another way now ({', '.join(other)})"
        if why:
            new.close()
            raise ModelLoadError(f"{old.name}: {why}: put that right and wake it, or %yaie restart loads what is there")
        return new
