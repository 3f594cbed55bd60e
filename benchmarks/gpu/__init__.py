"""What is learnt from batches and from a GPU's own counters, checked against a recording from a real GPU."""
