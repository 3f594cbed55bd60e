"""Acceptance of specs: checks beyond the schema, the site policy, and the last accepted spec with the digest that protects it."""
