"""Options of `halcyon bench`, by subject. Each module has one group, which the command receives as one object."""
