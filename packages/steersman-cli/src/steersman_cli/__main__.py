"""Entry point of ``python -m steersman_cli``, for environments without ``steersman`` in PATH."""

from steersman_cli.app import main

if __name__ == "__main__":
    main()
