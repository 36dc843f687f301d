"""Laws of vectors in protobuf and JSON: whatever numbers a message has come back under their names."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from mcap_samples import JSON, json_sample, of, protobuf_type, vector_of

number = st.floats(allow_nan=False, width=32)


def leaves(fields: dict[str, Any]) -> list[float]:
    """The numbers of a message in the order of its fields."""
    found: list[float] = []
    for value in fields.values():
        if isinstance(value, dict):
            found += leaves(value)
        else:
            found += value if isinstance(value, list) else [value]
    return found


def names_of(fields: dict[str, Any], prefix: str = "") -> list[str]:
    found: list[str] = []
    for name, value in fields.items():
        if isinstance(value, dict):
            found += names_of(value, f"{prefix}{name}.")
        elif isinstance(value, list):
            found += [f"{prefix}{name}.{index}" for index in range(len(value))]
        else:
            found.append(prefix + name)
    return found


field_names = st.sampled_from(["alpha", "beta", "gamma", "delta"])
messages = st.recursive(
    st.dictionaries(field_names, number | st.lists(number, max_size=3), min_size=1, max_size=3),
    lambda inner: st.dictionaries(field_names, number | inner, min_size=1, max_size=3),
    max_leaves=4,
).filter(lambda message: leaves(message) != [])


@given(messages)
def test_the_numbers_of_any_json_message_come_back_under_their_names(message: dict[str, Any]) -> None:
    data = json_sample("/t", message).data
    names, values = vector_of(of(JSON, data), data, data)
    assert names == tuple(names_of(message))
    assert values == [leaves(message)] * 2


@given(messages)
def test_the_numbers_of_any_protobuf_message_come_back_under_their_names(message: dict[str, Any]) -> None:
    def types(fields: dict[str, Any]) -> dict[str, Any]:
        words = {dict: types, list: lambda _: "*float", float: lambda _: "double"}
        return {name: words[type(value)](value) for name, value in fields.items()}

    def filled(target: Any, fields: dict[str, Any]) -> Any:
        for name, value in fields.items():
            if isinstance(value, dict):
                getattr(target, name).SetInParent()
                filled(getattr(target, name), value)
            elif isinstance(value, list):
                getattr(target, name).extend(value)
            else:
                setattr(target, name, value)
        return target

    kind, made = protobuf_type(types(message))
    data = filled(made(), message).SerializeToString()
    names, values = vector_of(of(kind, data), data, data)
    assert names == tuple(names_of(message))
    assert values == [leaves(message)] * 2


@given(st.binary(max_size=80))
def test_arbitrary_bytes_are_read_or_refused_and_nothing_else(data: bytes) -> None:
    kind, made = protobuf_type({"stamp": "Timestamp", "a": "double", "b": "*float", "c": {"d": "int64"}})
    first = made(a=1, b=[1, 2]).SerializeToString()
    for topic in (of(JSON, b'{"a": 1}'), of(kind, first)):
        for candidate in (data, first + data, b'{"a":' + data):
            try:
                block = topic.form.block([candidate])  # type: ignore[union-attr]
            except ValueError as error:
                assert str(error)
            else:
                assert all(np.asarray(values).dtype == np.float64 for values in block.values.values())
