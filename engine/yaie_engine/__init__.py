"""The inference engine of YAIE Magic."""
