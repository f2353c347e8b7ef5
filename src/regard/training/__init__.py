"""Learning: loss, optimiser and schedule, checkpoints, and the loop that joins them."""
