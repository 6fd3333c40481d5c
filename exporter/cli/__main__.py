"""`python -m exporter.cli`: the same command without an installed script."""

from exporter.cli.app import main

if __name__ == "__main__":
    main()
