"""User commands, one per module, and the click group that loads them."""
