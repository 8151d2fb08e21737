"""The options of `score`, and the scores that they mean."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from maskov.errors import InputError
from maskov.options.option import SMOOTHING, option
from maskov.shipped import default_judge, default_model

if TYPE_CHECKING:
    from maskov.fasta import Record
    from maskov.models import MaskedModel
    from maskov.scoring import Score

_MODEL = "Model"


@dataclass(frozen=True)
class ScoringOptions:
    """How texts are scored."""

    model: Annotated[str, option("--model", "built-in name, folder or hub name", _MODEL, "-m")] = (
        default_model()
    )
    energy: Annotated[
        Any,
        option("--energy", "raw, norm, raw(groups=4), autoregressive, or a sum", _MODEL, "-e"),
    ] = "raw"
    causal_model: Annotated[
        str | None,
        option("--causal-model", "causal LM for 'autoregressive' (default: --model)", _MODEL),
    ] = None
    tokenizer: Annotated[
        str | None,
        option("--tokenizer", "folder, hub name or vocab.txt (default: the model's)", _MODEL),
    ] = None
    device: Annotated[str, option("--device", "auto, cpu, cuda, cuda:1 ...", _MODEL)] = "auto"
    trust_remote_code: Annotated[
        bool, option("--trust-remote-code", "run code that comes with the model", _MODEL)
    ] = False
    prefix: Annotated[
        str, option("--prefix", "text that the model reads before every text", _MODEL)
    ] = ""
    remove_smoothing: Annotated[
        float,
        option("--remove-smoothing", SMOOTHING, _MODEL),
    ] = 0.0
    token_budget: Annotated[
        int | None, option("--token-budget", "tokens per model call (default: automatic)", _MODEL)
    ] = None

    def scores(
        self, lines: Sequence[str | Record], loaded: MaskedModel | None = None
    ) -> list[Score]:
        """Return the score of each line, by a model that is `loaded` or by the one named."""
        from maskov.energies import Autoregressive, Energy, parse_energy
        from maskov.energies.networks import Loading
        from maskov.models import choose_device
        from maskov.scoring import score_autoregressive, score_texts

        if self.token_budget is not None and self.token_budget < 1:
            raise InputError(f"--token-budget must be at least 1, not {self.token_budget}.")
        where = choose_device(self.device) if loaded is None else loaded.device
        if self.energy == "autoregressive":
            if self.prefix:
                raise InputError("the energy 'autoregressive' reads no prefix: drop --prefix.")
            if self.remove_smoothing:
                raise InputError(
                    "the energy 'autoregressive' has no masked conditionals: drop "
                    "--remove-smoothing."
                )
            named = loaded is None and self.model != default_model()
            name = self.causal_model or (self.model if named else default_judge())
            if name is None:
                raise InputError("the energy 'autoregressive' needs --causal-model, a causal LM.")
            causal = Autoregressive(
                name,
                where,
                trust_remote_code=self.trust_remote_code,
                budget=self.token_budget,
            )
            return score_autoregressive(causal, lines)
        loading = Loading(where, self.trust_remote_code, budget=self.token_budget)
        energy = self.energy
        if not isinstance(energy, Energy):
            energy = parse_energy(energy, self.causal_model or default_judge(), loading)
        return score_texts(loaded or self.load_model(), lines, energy, self.token_budget)

    def load_model(self) -> MaskedModel:
        """Load the masked model."""
        from maskov.models import load

        return load(
            self.model,
            self.device,
            tokenizer=self.tokenizer,
            trust_remote_code=self.trust_remote_code,
            prefix=self.prefix,
            remove_smoothing=self.remove_smoothing,
        )
