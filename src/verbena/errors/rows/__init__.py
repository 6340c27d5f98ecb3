"""The rows of the error table, by area. errors/table.py joins them.
May depend on the exception classes and on Explanation only."""
