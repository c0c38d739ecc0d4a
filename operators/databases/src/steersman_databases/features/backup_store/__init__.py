"""Object stores: access, verification and the paths of clusters in them."""
