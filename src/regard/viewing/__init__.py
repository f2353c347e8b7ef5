"""Pictures of models: what they attend to, and what they are made of."""
