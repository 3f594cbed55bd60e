"""The commands, one per module, and the group that loads them."""
