"""``python -m firebrick``: the command ``firebrick``."""

from firebrick.cli.main import main

if __name__ == "__main__":
    main(prog_name="firebrick")
