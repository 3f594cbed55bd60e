"""Result of a tuning run: its findings, what it teaches, and its pages as text and HTML. Pure."""
