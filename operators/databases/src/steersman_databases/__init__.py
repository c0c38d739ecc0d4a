"""PostgreSQL and MySQL databases on Kubernetes."""
