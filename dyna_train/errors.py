"""Every error a user can meet.

    DynaError
    ├── BadInput            what was handed to us cannot be used (also a ValueError)
    │   ├── ConfigError     a TOML file or one of its keys
    │   └── ManifestError   a manifest file
    ├── EpisodeError        an episode file is not what its profile promises
    │   ├── TruncatedEpisode
    │   ├── CorruptEpisode
    │   └── MissingFrame        a camera has a gap there
    └── MissingExtra        an optional part is not installed

A message says what is wrong, where, what was expected, what was found, and what to do.
"""

import difflib
from collections.abc import Collection


def did_you_mean(name: str, known: Collection[str], noun: str) -> str:
    """The hint for an unknown name: "did you mean 'crop'?", or what there is: "steps are crop, flip"."""
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.4)
    return f"did you mean '{near[0]}'?" if near else f"{noun} are {', '.join(known) or 'none'}"


class DynaError(Exception):
    """Base of all errors that are meant for the user; programs print it without a traceback."""


class BadInput(DynaError, ValueError):
    """Input that cannot be used."""


class ConfigError(BadInput):
    """A configuration file, or a key in it, is wrong."""


class ManifestError(BadInput):
    """A manifest file is missing, damaged, or of another schema."""


class EpisodeError(DynaError):
    """An episode file breaks its profile."""


class TruncatedEpisode(EpisodeError):
    """An episode file ends before it should."""


class CorruptEpisode(EpisodeError):
    """Bytes of an episode file are not the ones that were written."""


class MissingFrame(EpisodeError):
    """A camera has no frame at a step that was asked for."""


class MissingExtra(DynaError, ImportError):
    """An optional dependency is needed and absent."""

    @classmethod
    def of(cls, module: str, extra: str, purpose: str) -> "MissingExtra":
        """The error for a missing `module`, naming the command that installs its extra."""
        command = f"pip install 'dyna-data-engine[{extra}]'"
        return cls(f"{purpose} needs the module '{module}', which is not installed. Run: {command}")
