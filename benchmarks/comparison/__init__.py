"""This engine and its peers side by side: the same token ids, interleaved, each in a process of its own."""
