"""What `yaie bench` measures and how: workloads, what one repetition took, and load on a server."""
