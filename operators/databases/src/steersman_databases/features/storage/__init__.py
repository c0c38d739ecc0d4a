"""PVCs of instances: creation, resize, retention."""
