"""Commands in Python, one function each, by the data type that they are about."""
