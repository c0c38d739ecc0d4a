"""``python -m steersman.cli``: the ``steersman`` command, where it is not in PATH."""

from steersman.cli.app import main

if __name__ == "__main__":
    main()
