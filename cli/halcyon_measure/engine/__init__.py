"""Execution of a load: a pool of worker processes, and the sending of requests at their due times."""
