"""The models, all behind one interface: `SequenceModel`."""
