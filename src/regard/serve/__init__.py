"""Models behind HTTP: a desk that takes requests to their models, and the app around it."""
