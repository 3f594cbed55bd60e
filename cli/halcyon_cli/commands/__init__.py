"""The commands, one a module, and the group that finds them."""
