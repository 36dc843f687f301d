"""What is trained on of an episode: its valid stretches, and the statistics of what they hold."""

from __future__ import annotations

import duckdb
import numpy as np

from dyna_assets.errors import CurationError
from dyna_assets.warehouse.store import batches, fetch
from dyna_train.manifest import Statistics, VectorStatistics

SPANS = "CASE WHEN valid_starts IS NULL THEN list_zip([0], [num_steps]) ELSE list_zip(valid_starts, valid_ends) END"
"""(first step, step after the last) of an episode's valid stretches; rows older than that are valid all over."""
_NUM_VALID = f"list_sum(list_transform({SPANS}, lambda span: span[2] - span[1]))::BIGINT"
_ARE_NUMBERS = "isfinite(list_sum(state_m2 || action_m2))"
"""Whether an episode's vectors hold numbers only: one that is none spoils the squares of its dimension."""
_SHOWN = 5


def statistics(connection: duckdb.DuckDBPyConnection, name: str) -> Statistics:
    """Statistics over all valid steps of the episodes in the table `selected`; name: of the curation.

    Raises CurationError naming the episodes that hold values which are no numbers there.
    """
    _refuse_no_numbers(connection, name)
    return Statistics(state=_of_vector(connection, "state"), action=_of_vector(connection, "action"))


def _refuse_no_numbers(connection: duckdb.DuckDBPyConnection, name: str) -> None:
    found = fetch(
        connection,
        "SELECT episode_id, source, name, count(*) OVER () AS num FROM selected "
        f"WHERE stretch = 0 AND NOT {_ARE_NUMBERS} ORDER BY episode_id LIMIT {_SHOWN}",
    )
    if found:
        shown = ", ".join(f"{row['episode_id']} ({row['source']}: {row['name']})" for row in found)
        first = "first " if found[0]["num"] > len(found) else ""
        raise CurationError(
            f"curation '{name}': {found[0]['num']} of the selected episodes have states or actions that are no numbers "
            f"(NaN or infinite) at valid steps, {first}{shown}; expected numbers, of which statistics can be made. "
            f'Leave them out, adding to the condition: --where "{_ARE_NUMBERS}"; or judge again by a policy '
            "whose check vector.finite rejects them: dyna-assets regate default"
        )


def _of_vector(connection: duckdb.DuckDBPyConnection, vector: str) -> VectorStatistics:
    """From the episodes' own moments, each weighted with its number of valid steps.

    Means and squared distances are combined as in Chan, Golub and LeVeque (1979), which, unlike sums of
    squares, does not cancel where the mean is large against the spread.
    """
    num = 0
    mean_D = m2_D = low_D = high_D = np.empty(0)
    moments_of = f"{vector}_mean, {vector}_m2, {vector}_min, {vector}_max"
    query = f"SELECT {_NUM_VALID}, {moments_of} FROM selected WHERE stretch = 0"
    for batch in batches(connection, query):
        n_E, *moments = (np.array(batch.column(k).to_pylist(), dtype=np.float64) for k in range(5))
        mean_ED, m2_ED, low_ED, high_ED = moments
        total = num + n_E.sum()
        if num == 0:
            mean_D, m2_D = np.zeros(mean_ED.shape[1]), np.zeros(mean_ED.shape[1])
            low_D, high_D = np.full_like(mean_D, np.inf), np.full_like(mean_D, -np.inf)
        combined_D = (num * mean_D + n_E @ mean_ED) / total
        m2_D = m2_D + m2_ED.sum(0) + num * (mean_D - combined_D) ** 2 + n_E @ (mean_ED - combined_D) ** 2
        mean_D, num = combined_D, total
        low_D, high_D = np.minimum(low_D, low_ED.min(0)), np.maximum(high_D, high_ED.max(0))
    std_D = np.sqrt(m2_D / max(num, 1))
    return VectorStatistics(
        mean=tuple(mean_D.tolist()),
        std=tuple(std_D.tolist()),
        min=tuple(low_D.tolist()),
        max=tuple(high_D.tolist()),
    )
