"""Sessions, inspection and statements of MySQL and MariaDB."""
