"""What every model has to keep to, whatever it is made of."""
