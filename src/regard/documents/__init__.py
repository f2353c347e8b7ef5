"""Documents that keep their form when their text is translated."""
