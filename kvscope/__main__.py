"""`python -m kvscope`: the same command without an installed script."""

from kvscope.cli.app import main

if __name__ == "__main__":
    main()
