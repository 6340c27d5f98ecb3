"""`verbena completion`: scripts for bash, zsh and fish, made from the parsers.
`words` reads the parsers; `bash`, `zsh` and `fish` write a script from what it found.
May import cli/help and verbena.config only, and no native code."""
