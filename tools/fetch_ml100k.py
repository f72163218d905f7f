#!/usr/bin/env python3
"""Fetches ML-100K's events (943 users, 100,000 ratings) for `pantile demo`.

The data may not be redistributed, so it is never committed: this downloads a Python package that ships
it, takes the one file out, checks its sha256, and leaves it at the given place, by default
build/data/ml-100k.inter. It does nothing when the file is there. Without a network it says so, leaves
nothing and succeeds: the demo then samples history lengths instead.

    tools/fetch_ml100k.py [destination]
"""
import hashlib
import os
import pathlib
import subprocess
import sys
import tempfile
import zipfile

PACKAGE = "recbole==1.2.1"
MEMBER = "recbole/dataset_example/ml-100k/ml-100k.inter"
SHA256 = "4edb74e2a81178c2ba9ff381495f754f996c4aea351b1272ca36b43da0935eff"
DEFAULT = pathlib.Path(__file__).resolve().parent.parent / "build" / "data" / "ml-100k.inter"


def is_right(data):
    return hashlib.sha256(data).hexdigest() == SHA256


def say(sentence):
    print(f"fetch_ml100k: {sentence}", file=sys.stderr)


def download(folder):
    """The bytes of the member, or None when the package could not be had."""
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
        return wheel.read(MEMBER)


def main():
    if len(sys.argv) > 2 or sys.argv[1:2] in (["-h"], ["--help"]):
        print(__doc__.strip())
        return 0 if len(sys.argv) == 2 else 2
    place = pathlib.Path(sys.argv[1]) if len(sys.argv) == 2 else DEFAULT
    if place.is_file() and is_right(place.read_bytes()):
        return 0

    with tempfile.TemporaryDirectory() as folder:
        data = download(folder)
    if data is None and place.exists():
        say(f"{place} is there, but it is not the file with sha256 {SHA256}")
        return 1
    if data is None:
        say("nothing is left behind; pantile demo will use seeded history lengths instead")
        return 0
    if not is_right(data):
        say(f"{MEMBER}: sha256 is {hashlib.sha256(data).hexdigest()}, expected {SHA256}; not kept")
        return 1
    place.parent.mkdir(parents=True, exist_ok=True)
    part = place.with_name(place.name + ".part")
    part.write_bytes(data)
    os.replace(part, place)
    return 0


if __name__ == "__main__":
    sys.exit(main())
