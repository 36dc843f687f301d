"""Labellers `caption`, `embedding` and `language`: what was said of an episode, and what a model says of it.

A model is a class named in the source's TOML ([labels] captioner = "module:Class"). It is made once in each
process, without arguments.
"""

from __future__ import annotations

import base64
import functools
import importlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dyna_assets.errors import SetupError
from dyna_assets.labels.registry import Annotation, labeller
from dyna_assets.labels.view import EpisodeView
from dyna_train.errors import BadInput


@dataclass(frozen=True, slots=True)
class Text:
    """Something that was written of a recording, with its time on the recording's own clock, ns.

    key: what it is ('task', 'subtask', 'interjection'). end_ns: None for an instant. subject: a camera, or ''.
    """

    key: str
    text: str
    time_ns: int
    end_ns: int | None = None
    subject: str = ""

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> Text:
        """From an entry of the evidence's "texts". Raises BadInput for anything else."""
        try:
            end_ns = found.get("end_ns")
            return cls(
                str(found["key"]),
                str(found["text"]),
                int(found["time_ns"]),
                None if end_ns is None else int(end_ns),
                str(found.get("subject") or ""),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise BadInput(
                f"a text of a recording needs key, text and time_ns, found {found!r} ({error!r})"
            ) from None


class Captioner(Protocol):
    """Describes an episode in words. name: stands in the annotation's key, 'caption.<name>'."""

    name: str

    def caption(self, view: EpisodeView) -> str:
        """One text for the whole episode; '' if there is nothing to say."""
        ...


class Embedder(Protocol):
    """Turns an episode into one vector, so that episodes alike are neighbours. name: as of a Captioner."""

    name: str

    def embed(self, view: EpisodeView) -> NDArray[np.float32]:
        """float32 [E], E the same for every episode."""
        ...


class TaskCaptioner:
    """The captioner without a model: the task as the recording or its upload states it."""

    name = "task"

    def caption(self, view: EpisodeView) -> str:
        """The task text."""
        return view.task


@labeller("caption", version=1)
def caption(view: EpisodeView) -> Iterator[Annotation]:
    """What the source's captioner says. Raises SetupError if there is no such class."""
    captioner: Captioner = model_named(view.options.captioner)
    text = captioner.caption(view)
    if text:
        yield Annotation("", f"caption.{captioner.name}", text=text)


@labeller("embedding", version=1)
def embedding(view: EpisodeView) -> Iterator[Annotation]:
    """What the source's embedder makes of it, if it names one. Raises SetupError if there is no such class."""
    if view.options.embedder is None:
        return
    embedder: Embedder = model_named(view.options.embedder)
    vector_E = np.asarray(embedder.embed(view), np.float32)
    if vector_E.ndim != 1 or not np.isfinite(vector_E).all():
        raise SetupError(
            f"embedder {view.options.embedder} gave an array of shape {vector_E.shape}, or numbers that are not "
            "finite; expected one finite vector"
        )
    yield Annotation("", f"embedding.{embedder.name}", len(vector_E), "dimensions", text_of(vector_E))


@labeller("language", version=1)
def language(view: EpisodeView) -> Iterator[Annotation]:
    """The recording's own texts at their times, which lie outside the episode where they were said outside it.

    Raises BadInput for an entry that is no text.
    """
    for found in view.texts:
        said = Text.of(found)
        start_s, end_s = (
            None if time_ns is None else (time_ns - view.header.start_ns) / 1e9
            for time_ns in (said.time_ns, said.end_ns)
        )
        yield Annotation(said.subject, said.key, text=said.text, start_s=start_s, end_s=end_s)


@functools.cache
def model_named(dotted: str) -> Any:
    """The model of the class 'module:Class', made once. Raises SetupError saying what is not there."""
    module_name, _, class_name = dotted.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise SetupError(
            f"[labels] names '{dotted}': module '{module_name}' cannot be imported ({error}); install it where "
            "the workers run, or correct the source's TOML"
        ) from error
    if not hasattr(module, class_name):
        raise SetupError(f"[labels] names '{dotted}': module '{module_name}' has no class '{class_name}'")
    return getattr(module, class_name)()


def text_of(vector_E: NDArray[np.float32]) -> str:
    """A vector as annotations hold it: base64 of its little-endian float32."""
    return base64.b64encode(vector_E.astype("<f4").tobytes()).decode()


def vector_of(text: str) -> NDArray[np.float32]:
    """From `text_of`, float32 [E]."""
    return np.frombuffer(base64.b64decode(text), "<f4")
