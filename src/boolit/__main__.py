"""``python -m boolit`` is the command ``boolit``."""

from boolit.cli import main

if __name__ == "__main__":
    main()
