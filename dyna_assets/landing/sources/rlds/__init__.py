"""RLDS data sets in TFRecord files (Open X-Embodiment): a record an episode, without times. Start at `reader`;
`features` says what the lists of a record are.
"""
