"""The rows of the error table, by area. errors/table.py joins them."""
