"""The kinds of Kubernetes itself: their types, defaults, validation, and what of them cannot change."""
