"""Looking: a page per episode that a person judges in five seconds, a page per shard, and small media."""
