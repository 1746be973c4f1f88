"""The persistent prefix store: KV of prompts that outlives the process, one checked file for each prefix."""
