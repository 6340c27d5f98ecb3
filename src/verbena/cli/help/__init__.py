"""The help of the command line: the page of `verbena`, help pages of commands, usage errors.
`catalog` is the one list of commands; `Parser` is the argparse parser that all commands use.
May import verbena.config and cli/output only, and no native code."""
