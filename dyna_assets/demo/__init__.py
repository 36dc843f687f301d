"""The whole path in one command: record or take recordings, ingest, curate, train, report."""
