"""Texts: captions and embeddings of named models, and what a recording says at its times."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from label_samples import arm_view, reaches
from row_samples import START_NS

from dyna_assets.labels import LABELLERS, annotate
from dyna_assets.labels.options import LabelOptions
from dyna_assets.labels.text import vector_of
from dyna_train.config import parse_config
from dyna_train.errors import ConfigError

MODEL = """
import numpy as np

class Counter:
    name = "counter"
    made = 0

    def __init__(self):
        Counter.made += 1

    def caption(self, view):
        return f"{view.num_steps} steps of {view.task}"

    def embed(self, view):
        return np.arange(4) / 2

class Broken(Counter):
    def embed(self, view):
        return np.full((2, 2), np.nan)
"""


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of an importable module with models."""
    name = f"models_of_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(MODEL)
    monkeypatch.syspath_prepend(tmp_path)
    return name


def rows(kind: str, **options: Any) -> list[dict[str, Any]]:
    found = annotate(arm_view(reaches(60), **options), {kind: LABELLERS[kind]})
    return list(found.rows)


def test_the_caption_is_the_task_where_the_source_names_no_model() -> None:
    (row,) = rows("caption", task="fold the towel")
    assert (row["key"], row["text"]) == ("caption.task", "fold the towel")
    assert rows("caption", task="") == []


def test_a_source_names_its_own_models_which_are_made_once(models: str) -> None:
    options = LabelOptions(captioner=f"{models}:Counter", embedder=f"{models}:Counter")
    for _ in range(3):
        (caption,) = rows("caption", task="fold", options=options)
        (embedding,) = rows("embedding", options=options)
    assert (caption["key"], caption["text"]) == ("caption.counter", "60 steps of fold")
    assert (embedding["key"], embedding["value"], embedding["unit"]) == ("embedding.counter", 4, "dimensions")
    np.testing.assert_array_equal(vector_of(embedding["text"]), np.array([0, 0.5, 1, 1.5], np.float32))
    assert sys.modules[models].Counter.made == 1


def test_without_an_embedder_there_is_no_embedding() -> None:
    assert rows("embedding") == []


@pytest.mark.parametrize(
    ("dotted", "message"),
    [
        ("no_such_module:Model", "module 'no_such_module' cannot be imported"),
        ("dyna_assets.labels.text:Model", "module 'dyna_assets.labels.text' has no class 'Model'"),
    ],
)
def test_a_model_that_is_not_there_is_named_in_the_row(dotted: str, message: str) -> None:
    (row,) = rows("caption", options=LabelOptions(captioner=dotted))
    assert row["status"] == "error"
    assert message in row["text"]


def test_an_embedding_that_is_no_finite_vector_is_refused(models: str) -> None:
    (row,) = rows("embedding", options=LabelOptions(embedder=f"{models}:Broken"))
    assert "gave an array of shape (2, 2), or numbers that are not finite" in row["text"]


def test_a_model_is_named_by_module_and_class() -> None:
    with pytest.raises(ConfigError, match=r"lab.toml: key 'captioner' = 'my model'"):
        parse_config(LabelOptions, {"captioner": "my model"}, where="lab.toml")


def test_texts_of_the_recording_stand_at_their_times_also_outside_the_episode() -> None:
    texts = [
        {"key": "subtask", "text": "open", "time_ns": START_NS - 500_000_000, "end_ns": START_NS + 10**9},
        {"key": "vqa", "text": "where?", "time_ns": START_NS + 10**9, "end_ns": None, "subject": "top"},
    ]
    subtask, question = rows("language", texts=texts)
    assert (subtask["key"], subtask["text"], subtask["start_s"], subtask["end_s"]) == (
        "subtask",
        "open",
        -0.5,
        1,
    )
    assert (question["subject"], question["start_s"], question["end_s"]) == ("top", 1.0, None)


@pytest.mark.parametrize("text", [{"key": "subtask"}, {"key": "a", "text": "b", "time_ns": "soon"}, "open"])
def test_an_entry_that_is_no_text_is_shown(text: Any) -> None:
    (row,) = rows("language", texts=[text])
    assert row["status"] == "error"
    assert "a text of a recording needs key, text and time_ns, found" in row["text"]
