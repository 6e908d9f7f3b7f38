"""The `dovetail` command of an installed package: the program in bin/, in place of this process."""
import os
import sys


def main():
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "dovetail")
    try:
        os.execv(path, ["dovetail", *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"dovetail: cannot run {path}: {error.strerror}")


if __name__ == "__main__":
    main()
