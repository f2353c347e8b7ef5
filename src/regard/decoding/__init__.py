"""From a model to text: search that knows `SequenceModel` and nothing else."""
