"""Numbers that are shown under load, and the same numbers computed apart from what shows them."""
