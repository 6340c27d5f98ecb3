"""Creates the links of a session and replaces lost ones."""
