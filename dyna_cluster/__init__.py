"""What keeps a training job running on the nodes it has."""
