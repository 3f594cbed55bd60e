"""The web dashboard: what the operator knows of its models, for people, in a browser. It reads and changes nothing.

| module    | what it does                                                                    |
| --------- | ------------------------------------------------------------------------------- |
| `source`  | what is needed of the operator, and what a reading is                           |
| `history` | an hour of points per model, in memory                                          |
| `quantiles` | what balancers have counted -> latency of clients, between two looks          |
| `fleet`   | models -> rows, filtered, sorted and paged                                      |
| `phases`  | a pod -> what it has been doing since when                                      |
| `detail`  | one model -> everything that its page shows                                     |
| `whatif`  | other targets at the arrivals that a planner remembers                          |
| `access`  | who asks, and which namespaces they may see                                     |
| `streams` | server-sent events: one at a time, no more often than they can be read          |
| `site`    | HTTP: routes, headers, files                                                    |
| `static/` | the pages: plain modules that browsers run as they are, and uPlot (`scripts/charts`) |
| `documents.d.ts` | the operator's answers as types, for `make typecheck`                    |

`quantiles`, `fleet`, `phases`, `detail` and `whatif` are pure. Not here: informers, reviews and records of agents; `halcyon.control.reporting.dashboard_source` brings them.
"""
