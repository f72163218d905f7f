#!/usr/bin/env python3
"""Fetches ML-100K's events (943 users, 100,000 ratings) for `pantile demo` and examples/recommender.

The data may not be redistributed, so it is never committed: this downloads a Python package that ships
it, takes the one file out, checks its sha256, and leaves it at the given place, by default
build/data/ml-100k.inter; with --titles also ml-100k.item, the films' titles, beside it. It does nothing
when the files are there. Without a network it says so, leaves nothing and succeeds: the demo then
samples history lengths instead.

    tools/fetch_ml100k.py [--titles] [destination]
"""
import hashlib
import os
import pathlib
import subprocess
import sys
import tempfile
import zipfile

PACKAGE = "recbole==1.2.1"
FOLDER = "recbole/dataset_example/ml-100k"
EVENTS, TITLES = "ml-100k.inter", "ml-100k.item"
SHA256 = {EVENTS: "4edb74e2a81178c2ba9ff381495f754f996c4aea351b1272ca36b43da0935eff",
          TITLES: "51d7cdf777ce5c0f5b32c1d947a4a81fe07d75e78abbe761e0cd4d0756064532"}
DEFAULT = pathlib.Path(__file__).resolve().parent.parent / "build" / "data" / "ml-100k.inter"


def is_right(name, data):
    return hashlib.sha256(data).hexdigest() == SHA256[name]


def say(sentence):
    print(f"fetch_ml100k: {sentence}", file=sys.stderr)


def download(folder, names):
    """The bytes of the members by their names, or None when the package could not be had."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:",
               "--disable-pip-version-check", "--retries", "1", "--timeout", "15",
               "--dest", folder, PACKAGE]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    wheels = list(pathlib.Path(folder).glob("*.whl"))
    if done.returncode != 0 or not wheels:
        errors = [line for line in done.stdout.splitlines() if line.startswith("ERROR")]
        reason = errors[-1] if errors else f"pip ended with status {done.returncode}"
        say(f"could not download {PACKAGE}: no network? ({reason})")
        return None
    with zipfile.ZipFile(wheels[0]) as wheel:
        return {name: wheel.read(f"{FOLDER}/{name}") for name in names}


def fetch(place, titles=False):
    """The events at `place`, the titles beside it; the exit status."""
    places = {EVENTS: place, **({TITLES: place.with_name(TITLES)} if titles else {})}
    missing = {name: to for name, to in places.items() if not (to.is_file() and is_right(name, to.read_bytes()))}
    if not missing:
        return 0

    with tempfile.TemporaryDirectory() as folder:
        files = download(folder, missing)
    if files is None:
        wrong = [(name, to) for name, to in missing.items() if to.exists()]
        for name, to in wrong:
            say(f"{to} is there, but it is not the file with sha256 {SHA256[name]}")
        if not wrong:
            say("nothing is left behind; pantile demo will use seeded history lengths instead")
        return 1 if wrong else 0
    for name, data in files.items():
        if not is_right(name, data):
            say(f"{name}: sha256 is {hashlib.sha256(data).hexdigest()}, expected {SHA256[name]}; not kept")
            return 1
    for name, to in missing.items():
        to.parent.mkdir(parents=True, exist_ok=True)
        part = to.with_name(to.name + ".part")
        part.write_bytes(files[name])
        os.replace(part, to)
    return 0


def main():
    args = sys.argv[1:]
    if "-h" in args or "--help" in args:
        print(__doc__.strip())
        return 0
    places = [arg for arg in args if arg != "--titles"]
    if len(places) > 1 or any(place.startswith("-") for place in places):
        print(__doc__.strip())
        return 2
    return fetch(pathlib.Path(places[0]) if places else DEFAULT, "--titles" in args)


if __name__ == "__main__":
    sys.exit(main())
