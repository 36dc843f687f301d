"""One small trainable model over a manifest: `model` is the network, `train` the loop. Copy both."""
