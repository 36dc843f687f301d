"""The landing sensor: it asks for one run per shard, and for nothing while it waits."""

from __future__ import annotations

import dagster as dg
from path_house import House, tick


def test_the_sensor_requests_one_run_per_shard_and_asks_nothing_while_it_waits(house: House) -> None:
    house.simulate(3)
    first = tick(house)
    assert [request.partition_key for request in first.run_requests or []] == ["shard-000000"]
    (block,) = first.dynamic_partitions_requests or []
    assert len(block.partition_keys) == 1000
    second = tick(house, first.cursor)
    assert second.cursor == first.cursor
    # level-triggered: nobody ran the shard, so it is asked for again under the same key, which Dagster drops
    assert [request.run_key for request in second.run_requests or []] == [
        request.run_key for request in first.run_requests or []
    ]
    house.run()
    third = tick(house, second.cursor)
    assert not third.run_requests
    assert third.skip_reason == dg.SkipReason("nothing to do")


def test_a_shard_whose_run_has_not_started_is_not_asked_for_twice(house: House) -> None:
    house.simulate(1)
    first = tick(house)
    assert first.run_requests
    job = house.definitions.resolve_job_def("ingest_online")
    house.instance.add_dynamic_partitions("shards", ["shard-000000"])
    run = house.instance.create_run_for_job(
        job, tags={"dagster/partition": "shard-000000"}, status=dg.DagsterRunStatus.NOT_STARTED
    )
    second = tick(house, first.cursor)
    assert not second.run_requests
    house.instance.delete_run(run.run_id)
    assert tick(house, second.cursor).run_requests
