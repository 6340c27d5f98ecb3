"""A node's figures: read at any time without stopping anything, totals that never go backwards.
Gives the values (figures), the one table of metrics (table), its text (prometheus) and page (endpoint).
This file stays empty: the reference page is written from the table before anything native is built."""
