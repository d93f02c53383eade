"""`lumisite`, and `python -m lumisite`: the way in, which has nothing to load that an interrupt could break off."""

import gc
import signal
import sys

#: Whether Ctrl-C is for this process: not where somebody ignores it. It ends it without a word until a command runs.
INTERRUPTED = signal.getsignal(signal.SIGINT) is signal.default_int_handler
if INTERRUPTED:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def run() -> None:
    """Be the console entry point."""
    # A command lives for a fraction of a second and keeps nearly all that it makes: looking for cycles finds none, and
    # costs `binds` and `render` a fifth of their time (`python -m tests.bench closure render`).
    gc.set_threshold(100_000)
    try:
        from lumisite import cli

        cli.run(interrupted=INTERRUPTED)
    except ModuleNotFoundError as error:
        library = str(error.name).partition(".")[0]
        if library == "lumisite":
            raise
        todo = "`make render` in a checkout installs what lumisite needs; else install its wheel"
        print(f"lumisite: {sys.executable} has no package {library} ({todo})", file=sys.stderr)
        sys.exit(3)


if __name__ == "__main__":
    run()
