"""SQL plans for MySQL and MariaDB."""
