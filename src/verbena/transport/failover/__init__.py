"""Creates the links of a session and replaces lost ones.
May not depend on transport.listening."""
