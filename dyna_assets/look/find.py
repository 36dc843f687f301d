"""Finding an episode by what a person remembers of its name."""

from __future__ import annotations

import duckdb

from dyna_assets.errors import CurationError
from dyna_assets.warehouse.store import Warehouse

_SHOWN = 5
_EPISODES = (
    "(SELECT DISTINCT episode_id, source || ': ' || name AS full_name, name FROM version_stamps) AS episodes"
)


def find_episode(warehouse: Warehouse, text: str) -> int:
    """The id of the episode that `text` means: an id, 'source: upload/recording', or a part that only one has.

    Raises CurationError naming the episodes that match, or the nearest ones if none does.
    """
    with duckdb.connect() as connection:
        warehouse.view(connection, warehouse.pin("version_stamps"))
        is_id = text.isascii() and text.isdecimal() and len(text) < 19
        if is_id and _ask(connection, "episode_id = ?", [int(text)]):
            return int(text)
        exact = _ask(connection, "full_name = ? OR name = ?", [text, text])
        found = exact or _ask(connection, "contains(lower(full_name), lower(?))", [text])
        if len(found) == 1:
            return found[0][0]
        if found:
            raise CurationError(
                f"'{text}' is in the names of {len(found):,} episodes: {_list(found)}. Say more of the name, or the id"
            )
        near = connection.execute(
            f"SELECT episode_id, full_name FROM {_EPISODES} "
            "ORDER BY greatest(jaro_winkler_similarity(lower(full_name), lower($1)), "
            f"jaro_winkler_similarity(lower(name), lower($1))) DESC, episode_id LIMIT {_SHOWN}",
            [text],
        ).fetchall()
    if not near:
        raise CurationError(f"no episode '{text}': nothing was ingested yet. Run: dyna-assets worker --once")
    raise CurationError(f"no episode '{text}'. Nearest: {_list(near)}")


def _ask(
    connection: duckdb.DuckDBPyConnection, where: str, values: list[str] | list[int]
) -> list[tuple[int, str]]:
    query = f"SELECT episode_id, full_name FROM {_EPISODES} WHERE {where} ORDER BY episode_id"
    rows: list[tuple[int, str]] = connection.execute(query, values).fetchall()
    return rows


def _list(rows: list[tuple[int, str]]) -> str:
    """'12 (sim: a/b), 13 (sim: a/c) and 40 more'."""
    shown = ", ".join(f"{number} ({name})" for number, name in rows[:_SHOWN])
    more = len(rows) - _SHOWN
    return shown + (f" and {more:,} more" if more > 0 else "")
