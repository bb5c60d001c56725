"""Converts files of records to ArrayRecord; private to the command line and beam."""
