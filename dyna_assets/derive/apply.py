"""Making the derived signals that a source's TOML asks for."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from dyna_assets.derive.registry import DERIVED, Derivation, Signal
from dyna_assets.errors import RecordingError
from dyna_train.config import Config, parse_config
from dyna_train.errors import ConfigError

if TYPE_CHECKING:  # the profile checks its [[derived]] with this module
    from dyna_assets.landing.profile import DerivedRole
    from dyna_assets.steps.align import Alignment
    from dyna_train.episode.tracks import VectorTrack


def check_derived(roles: Iterable[DerivedRole], vectors: Collection[str]) -> None:
    """Raise ConfigError for a derived signal that no recording could have, in the order they are written.

    vectors: 'state/<name>' and 'action/<name>' of the source. A signal may be made of those before it.
    """
    known = list(vectors)
    for role in roles:
        function, _ = _understood(role)
        unknown = [name for name in role.of if name not in known]
        if unknown:
            there = ", ".join(known) or "none"
            raise ConfigError(
                f"{_where(role)}: there is no {', '.join(unknown)} to derive from; there are {there}"
            )
        if len(role.of) not in function.num_inputs:
            wanted = " or ".join(map(str, function.num_inputs))
            raise ConfigError(f"{_where(role)}: 'of' names {len(role.of)} signals, expected {wanted}")
        if _key(role) in known:
            raise ConfigError(f"{_where(role)}: {_key(role)} is there already; give it another name")
        known.append(_key(role))


def apply_derived(roles: Iterable[DerivedRole], signals: Mapping[str, Signal]) -> dict[str, Signal]:
    """Each derived signal by 'state/<name>' or 'action/<name>', in the order of `roles`.

    signals: those of the episode, see `signals_of`. Raises ConfigError as `check_derived`, and RecordingError, naming
    role, function and inputs, for one that cannot be made of this recording.
    """
    roles = list(roles)
    check_derived(roles, list(signals))
    made: dict[str, Signal] = {}
    for role in roles:
        function, options = _understood(role)
        inputs = tuple({**signals, **made}[name] for name in role.of)
        try:
            made[_key(role)] = function.compute(inputs, options)
        except RecordingError as error:
            shapes = "; ".join(
                f"{name}: {', '.join(one.names)}" for name, one in zip(role.of, inputs, strict=True)
            )
            raise RecordingError(f"{_where(role)} of {shapes}: {error}", check=error.check) from None
    return made


def signals_of(plan: Alignment, tracks: Iterable[VectorTrack]) -> dict[str, Signal]:
    """The vectors of an aligned episode, with the names and units of their tracks."""
    found = {f"{track.role}/{track.name}": track for track in tracks}
    return {
        name: Signal(
            plan.vectors[name][0].astype(np.float64),
            plan.vectors[name][1],
            ~plan.missing[name],
            track.names,
            track.units,
        )
        for name, track in found.items()
    }


def _understood(role: DerivedRole) -> tuple[Derivation, Config]:
    """The function a role names, and its options."""
    function = DERIVED.get(role.function)
    if function is None:
        near = difflib.get_close_matches(role.function, DERIVED, n=1, cutoff=0.4)
        hint = f"did you mean '{near[0]}'?" if near else f"functions are {', '.join(sorted(DERIVED))}"
        raise ConfigError(f"{_where(role)}: no function is called '{role.function}'; {hint}")
    return function, parse_config(function.options, dict(role.options), where=_where(role))


def _where(role: DerivedRole) -> str:
    return f"derived '{_key(role)}' ({role.function})"


def _key(role: DerivedRole) -> str:
    return f"{role.role}/{role.name}"
