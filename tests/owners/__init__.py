"""Who holds the memory: processes, containers, pods, jobs."""
