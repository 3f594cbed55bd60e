"""The largest rate that keeps an objective: a queue's law, what a run shows of it, and the search. Pure and seeded."""
