"""Acceptance of specs: checks beyond the schema, the site policy, and storage of the last accepted spec with a digest."""
