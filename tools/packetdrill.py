#!/usr/bin/env python3
"""Plays scripts of packetdrill against the lab, and says which agree. See docs/lab.md."""

import argparse
import sys
from pathlib import Path

sys.dont_write_bytecode = True
from packetdrill.ip import VERSIONS  # noqa: E402
from packetdrill.play import Player  # noqa: E402
from packetdrill.settings import SUITES  # noqa: E402


def pair(text):
    name, _, value = text.partition("=")
    return name, value


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scripts", nargs="+", type=Path, metavar="SCRIPT.pkt")
    parser.add_argument(
        "--target", type=Path, default=Path(__file__).parents[1] / "target",
        help="cargo's target directory, with debug/libclearway_lab.so",
    )  # fmt: skip
    parser.add_argument("--ip_version", choices=VERSIONS, default="ipv4")
    parser.add_argument(
        "--suite", choices=SUITES, default="linux", help="whose scripts they are"
    )  # fmt: skip
    parser.add_argument(
        "--set", type=pair, action="append", default=[], metavar="NAME=VALUE",
        help="a setting of docs/lab.md, whatever the script sets",
    )  # fmt: skip
    parser.add_argument(
        "-D", type=pair, action="append", default=[], metavar="NAME=VALUE",
        help="what a word of the script stands for",
    )  # fmt: skip
    parser.add_argument("-v", action="store_true", help="say what was not set, too")
    return parser.parse_args()


def main():
    chosen = arguments()
    settings = {name: int(value, 0) for name, value in chosen.set}
    differing = 0
    for path in chosen.scripts:
        try:
            version, suite = chosen.ip_version, chosen.suite
            player = Player(path, chosen.target, version, suite, dict(chosen.D), settings)
            problem = player.play()
            notes = player.settings.notes
        except ValueError as error:
            problem, notes = str(error), []
        differing += problem is not None
        print(f"{path.name}: {'agrees' if problem is None else 'differs: ' + problem}", flush=True)
        for note in notes if chosen.v else []:
            print(f"    {note}")
    print(f"{len(chosen.scripts) - differing} of {len(chosen.scripts)} agree")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
