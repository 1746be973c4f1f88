"""Engines in a process of their own, which outlive the kernel that started them: starting, finding, ending."""
