"""Other toolkits' models: reading them, writing them, and proving that both sides say the same."""
