"""Programs that measure, and the pages that show what they measured."""
