"""Who may do what: passwords, rules by repository, tokens. Without HTTP, and without the store.
Gives Passwords, Policy, Tokens and the Identity that handlers ask."""
