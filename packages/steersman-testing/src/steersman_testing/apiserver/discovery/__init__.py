"""What the server tells about itself: groups, resources, OpenAPI."""
