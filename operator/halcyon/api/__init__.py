"""The resource itself: its fields, their bounds and rules, its conditions, and the documents that Halcyon's parts exchange.

Nothing here reads a clock, a file or a network. This package imports nothing else of ours. Each module stands alone, so
that a small process (the agent, the fetcher) loads only what it uses.
"""
