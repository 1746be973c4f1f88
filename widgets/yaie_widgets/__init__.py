"""Views of an engine snapshot: drawings and widgets."""
