"""Commands on keys and values."""
