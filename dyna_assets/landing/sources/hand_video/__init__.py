"""First-person video with a file of hand poses beside it (CSV, JSON, Parquet). Start at `reader`; `poses` says what
pose files say, and `pairing` to which frame a row belongs.
"""
