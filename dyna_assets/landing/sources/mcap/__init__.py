"""MCAP files of any recorder. Start at `reader`; `file` reads records (`records`) as a `messages.file.MessageFile`, and
what its messages are is told in `messages`.
"""
