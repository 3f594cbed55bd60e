"""Generators of committed files from the code, run by `scripts/generate`. They are in no wheel and no image."""
