"""`python -m lumisite`."""

from lumisite.cli import run

if __name__ == "__main__":
    run()
