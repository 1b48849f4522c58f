"""`python -m fila` is the `fila` command."""

from fila.cli.main import main

if __name__ == "__main__":
    main()
