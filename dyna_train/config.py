"""Frozen configuration models, and how a TOML file becomes one."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from dyna_train.errors import ConfigError, did_you_mean

Model = TypeVar("Model", bound=BaseModel)


class Config(BaseModel):
    """Base of all configuration: immutable, and a key nobody knows is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def load_config(model: type[Model], path: str | Path) -> Model:
    """Read a TOML file into `model`.

    Raises ConfigError naming the file, the key, and for an unknown key the nearest valid one.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 text at byte {error.start}; TOML files are UTF-8") from None
    try:
        return parse_config(model, tomllib.loads(text), where=str(path))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from None


def parse_config(model: type[Model], data: dict[str, Any], *, where: str) -> Model:
    """Validate `data`; every fault becomes one line of a ConfigError that starts with `where`."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        faults = [_fault(model, fault) for fault in error.errors()]
        raise ConfigError("\n".join(f"{where}: {fault}" for fault in faults)) from None


def _fault(model: type[BaseModel], fault: Any) -> str:
    path = [str(part) for part in fault["loc"]]
    key = ".".join(path)
    if fault["type"] == "extra_forbidden":
        known = _keys_at(model, fault["loc"][:-1])
        hint = did_you_mean(path[-1], sorted(known), "valid keys")
        return f"unknown key '{key}'; {hint}"
    if fault["type"] == "missing":
        return f"key '{key}' is missing"
    said = str(fault["ctx"]["error"]) if fault["type"] == "value_error" else fault["msg"]  # a rule of ours
    if isinstance(fault["input"], Mapping):  # a rule over many keys names those that it means
        return f"key '{key}': {said}" if key else said
    return f"key '{key}' = {fault['input']!r}: {said}"


def _keys_at(model: type[BaseModel], loc: tuple[Any, ...]) -> list[str]:
    """Valid keys of the table that `loc` leads to."""
    for part in loc:
        if isinstance(part, int):
            continue
        field = model.model_fields.get(str(part))
        inner = _model_in(field.annotation) if field else None
        if inner is None:
            return []
        model = inner
    return list(model.model_fields)


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for inner in getattr(annotation, "__args__", ()):
        found = _model_in(inner)
        if found is not None:
            return found
    return None
