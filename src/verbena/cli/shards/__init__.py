"""`verbena shards`: `command` parses, `actions` runs, `follow` shows a move, `node` queries a node.
May import any layer; `command` may not import native code."""
