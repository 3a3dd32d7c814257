"""Programs into graphs; control flow as operators that take functions."""
