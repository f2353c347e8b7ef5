"""`regard` and `python -m regard`: the command line, which Ctrl-C may end from its first import on."""

from regard import signals


def main() -> None:
    """Run the command line."""
    signals.leave_imports_quietly()
    from regard.cli import main

    main()


if __name__ == "__main__":
    main()
