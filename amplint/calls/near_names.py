"""Names that the AMP modules never had, and the ones that were meant."""

from __future__ import annotations

from typing import NamedTuple

from amplint.torch_api import PUBLIC_NAMES, TORCH_STATE_NAMES

_SYNONYMS = {
    "customforward": "custom_fwd",
    "custombackward": "custom_bwd",
    "customfw": "custom_fwd",
    "custombw": "custom_bwd",
    "gradientscaler": "GradScaler",
    "scaler": "GradScaler",
}
_MODULES = frozenset(("autocast_mode", "common", "grad_scaler"))
_CLASSES_AND_DECORATORS = frozenset(("autocast", "GradScaler", "custom_fwd", "custom_bwd"))
_IN_TORCH = ("autocast", "GradScaler")
_ALIKE = 0.8
_ALIKE_IN_TORCH = 0.88


class Meant(NamedTuple):
    """The module and the name that were meant."""

    module: str
    name: str

    @property
    def qualified(self) -> str:
        """The full name."""
        return f"{self.module}.{self.name}"


def meant_by(module: str, name: str) -> Meant | None:
    """What a name in a module was meant to be; None where it exists, is private, or resembles nothing."""
    if name.startswith("_"):
        return None
    if module == "torch":
        if name in _IN_TORCH or name in TORCH_STATE_NAMES:
            return None
        found = _nearest(name, frozenset(_IN_TORCH), _ALIKE_IN_TORCH)
        return Meant("torch", found) if found else None
    if module in ("torch.cuda", "torch.cpu"):
        inner = f"{module}.amp"
        return Meant(inner, name) if name in PUBLIC_NAMES[inner] and name in _CLASSES_AND_DECORATORS else None
    known = PUBLIC_NAMES.get(module)
    if known is None or name in known:
        return None
    if name in TORCH_STATE_NAMES:
        return Meant("torch", name)
    if name in PUBLIC_NAMES["torch.amp"]:
        return Meant("torch.amp", name)
    found = _nearest(name, known - _MODULES, _ALIKE)
    return Meant(module, found) if found else None


def _nearest(name: str, known: frozenset[str], alike: float) -> str:
    """The one known name that a name resembles, "" where there is none or two are as near."""
    letters = _letters(name)
    for candidate in sorted(known):
        if letters == _letters(candidate) or _SYNONYMS.get(letters) == candidate:
            return candidate
    from difflib import SequenceMatcher

    ranked = sorted(
        ((SequenceMatcher(None, letters, _letters(candidate)).ratio(), candidate) for candidate in known), reverse=True
    )
    best, runner_up = ranked[0], ranked[1] if len(ranked) > 1 else (0.0, "")
    return best[1] if best[0] >= alike and best[0] - runner_up[0] > 0.05 else ""


def _letters(name: str) -> str:
    return name.replace("_", "").lower()
