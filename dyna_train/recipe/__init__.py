"""One small trainable model over a manifest: the network in `model`, the loop in `train`. Copy both."""
