"""The shard partition, and registering its keys in blocks ahead of need."""

from __future__ import annotations

import dagster as dg

from dyna_train.episode.address import shard_key

SHARDS = dg.DynamicPartitionsDefinition(name="shards")
MANIFESTS = dg.DynamicPartitionsDefinition(name="manifests")


def missing_shard_keys(instance: dg.DagsterInstance, highest_shard: int | None, block: int) -> list[str]:
    """Keys to register so that the block of `highest_shard` exists whole.

    One new key makes Dagster rebuild the partition status of every asset (43 s at 85,000 keys), so keys come
    in blocks; an empty shard is a no-op. The last key of a block stands for all of it.
    """
    first = 0 if highest_shard is None else highest_shard // block * block
    if instance.has_dynamic_partition("shards", shard_key(first + block - 1)):
        return []
    return [shard_key(number) for number in range(first, first + block)]
