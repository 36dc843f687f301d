"""Pictures and coded video: encode, decode, colours, bitstreams. Knows nothing of episode files."""
