"""Informers: local copies of the objects of a kind, kept current by a watch, and the objects that they reject as malformed."""
