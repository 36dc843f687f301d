"""Making the derived signals that a source's TOML asks for."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from dyna_assets.derive.registry import DERIVED, Derivation, Signal, Units
from dyna_assets.derive.role import DerivedRole
from dyna_assets.errors import RecordingError
from dyna_train.config import Config, parse_config
from dyna_train.episode.tracks import VectorTrack
from dyna_train.errors import ConfigError, did_you_mean


def check_derived(roles: Iterable[DerivedRole], vectors: Mapping[str, Units]) -> None:
    """Raise ConfigError for a derived signal that no recording could have, in the order they are written.

    vectors: 'state/<name>' and 'action/<name>' of the source -> its units. A signal may be made of those before it.
    """
    known = dict(vectors)
    for role in roles:
        function, options = _understood(role, known)
        try:
            known[role.key] = function.units_of(tuple(known[name] for name in role.of), options)
        except RecordingError as error:
            raise ConfigError(f"{role.where}: {error}") from None


def apply_derived(roles: Iterable[DerivedRole], signals: Mapping[str, Signal]) -> dict[str, Signal]:
    """Each derived signal by 'state/<name>' or 'action/<name>', in the order of `roles`.

    signals: those of the episode, see `signals_of`. Raises ConfigError for what `check_derived` refuses by its names,
    and RecordingError, naming role, function and inputs, for one that cannot be made of this recording.
    """
    made: dict[str, Signal] = {}
    for role in roles:
        there = {**signals, **made}
        function, options = _understood(role, there)
        inputs = tuple(there[name] for name in role.of)
        try:
            function.units_of(tuple(one.units for one in inputs), options)
            made[role.key] = function.compute(inputs, options)
        except RecordingError as error:
            of = ", ".join(
                f"{name} ({', '.join(one.names)})" for name, one in zip(role.of, inputs, strict=True)
            )
            raise RecordingError(
                f"{role.key} = {role.function} of {of}: {error}", check=error.check
            ) from None
    return made


def signals_of(
    vectors: Mapping[str, tuple[NDArray[np.float32], NDArray[np.int64]]],
    missing: Mapping[str, NDArray[np.bool_]],
    tracks: Iterable[VectorTrack],
) -> dict[str, Signal]:
    """The vectors of an aligned episode, with the names and units of their tracks.

    vectors: 'state/<name>' or 'action/<name>' -> (float32 [T, D], capture times int64 ns [T]). missing: the same
    names -> bool [T], steps without it. Both may name more than `tracks`.
    """
    found = {f"{track.role}/{track.name}": track for track in tracks}
    return {
        name: Signal(
            vectors[name][0].astype(np.float64), vectors[name][1], ~missing[name], track.names, track.units
        )
        for name, track in found.items()
    }


def _understood(role: DerivedRole, known: Collection[str]) -> tuple[Derivation, Config]:
    """The function a role names, and its options. Raises ConfigError for what does not go with the `known` signals."""
    function = DERIVED.get(role.function)
    if function is None:
        hint = did_you_mean(role.function, sorted(DERIVED), "functions")
        raise ConfigError(f"{role.where}: no function is called '{role.function}'; {hint}")
    options = parse_config(function.options, dict(role.options), where=role.where)
    unknown = [name for name in role.of if name not in known]
    if unknown:
        there = ", ".join(known) or "none"
        raise ConfigError(f"{role.where}: there is no {', '.join(unknown)} to derive from; there are {there}")
    if len(role.of) not in function.num_inputs:
        wanted = " or ".join(map(str, function.num_inputs))
        raise ConfigError(f"{role.where}: 'of' names {len(role.of)} signals, expected {wanted}")
    if role.key in known:
        raise ConfigError(f"{role.where}: {role.key} is there already; give it another name")
    return function, options
