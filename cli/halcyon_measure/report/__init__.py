"""Results as an HTML page, as CSV and as a text table: views of `bench.json`. Pure.

| module              | content                                                             |
| ------------------- | ------------------------------------------------------------------- |
| `page`              | the HTML page, which makes no request                               |
| `markup`            | elements, whose text is always escaped                              |
| `chart`             | a chart, drawn from the table beside it                             |
| `labels`            | short names of runs: what differs between them                      |
| `load_sections`     | answer, validity, figures, latency, failures                        |
| `answer_sections`   | search for the capacity, comparisons, leaderboard                   |
| `sweep_sections`    | pictures over load, batch and protocol                              |
| `server_sections`   | phases, hardware, batches, energy, cold start                       |
| `model_sections`    | the model on paper, its roofline, and without a server              |
| `run_sections`      | what was run, and the data                                          |
| `csv_rows`          | one row for each run                                                |
| `table_text`        | the table of a terminal                                             |
| `static/`           | style sheet and script of the page                                  |

Out of scope: what the figures mean (`results`), files and the chart library, which the caller gives.
"""
