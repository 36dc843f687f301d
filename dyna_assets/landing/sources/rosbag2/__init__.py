"""ROS 2 bags: SQLite or MCAP files that a metadata.yaml lists. Start at `reader`; `file` reads the splits as one
`messages.file.MessageFile`, and what its messages are is told in `messages`.
"""
