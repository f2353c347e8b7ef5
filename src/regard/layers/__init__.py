"""The parts models are made of: masks, attention, positions, feed-forward, residual blocks, embeddings."""
