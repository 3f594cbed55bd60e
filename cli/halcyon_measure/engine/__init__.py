"""Execution of a load: worker processes that send requests when they are due, and the process that starts them."""
