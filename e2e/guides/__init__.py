"""The pages of docs/ as a reader runs them: `make test-guides`."""
