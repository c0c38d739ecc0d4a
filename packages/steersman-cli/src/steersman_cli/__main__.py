"""``python -m steersman_cli``: the ``steersman`` command, where it is not in PATH."""

from steersman_cli.app import main

if __name__ == "__main__":
    main()
