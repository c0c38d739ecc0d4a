"""Changes of CPU and memory of running pods, without a restart."""
