"""Pictures and H.264: encode, decode, colours. Knows nothing of episode files."""
