"""Access control: passwords, rules per repository, bearer tokens. Depends neither on HTTP nor on the store.
Provides Passwords, Policy, Tokens, and the Identity that request handlers check."""
