"""HDF5 files as ALOHA and its kin write them: a file an episode, at a fixed rate. Start at `reader`; `layout` says
what the datasets of a file are.
"""
