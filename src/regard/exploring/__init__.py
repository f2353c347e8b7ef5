"""What a model thinks, as plain values: for the page, for pictures, and for whoever asks in Python.

Every function takes a `Bundle` (a loaded `regard.api.Model` is one) and gives a frozen dataclass whose `to_json()` is
what the server answers with.
"""
