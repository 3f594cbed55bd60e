"""README's own words, run on a fresh cluster with an image registry: `make test-readme`."""
