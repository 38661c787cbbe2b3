#!/usr/bin/env python3
"""pick.py FUZZER CORPUS FOUND... [-- MOST]: make CORPUS the inputs of CORPUS and FOUND that together
reach every edge: greedily, at most MOST (40) of them, those with a name (regression-*, ...) first of
all.

libFuzzer's merge keeps every input with a new feature, hundreds of them; a corpus in the tree needs
one for each edge."""

import pathlib
import shutil
import subprocess
import sys
import tempfile


def edges(fuzzer, folders, work):
    """Input -> the edges that it reaches, from the control file of a merge."""
    control = work / "control"
    kept = work / "kept"
    kept.mkdir()
    subprocess.run([fuzzer, "-merge=1", f"-merge_control_file={control}", kept, *folders],
                   stderr=subprocess.DEVNULL, check=True)
    lines = control.read_text().splitlines()
    names = lines[2:2 + int(lines[0])]
    covered = {}
    for line in lines:
        if line.startswith("FT "):  # features: an edge, and in the low bits how often it was passed
            _, number, *found = line.split()
            covered[pathlib.Path(names[int(number)])] = {int(feature) // 8 for feature in found}
    return covered


def pick(covered, most):
    chosen, reached = [], set()
    left = dict(covered)
    for path in [path for path in left if "-" in path.name]:
        chosen.append(path)
        reached |= left.pop(path)
    while left and len(chosen) < most:
        best = max(left, key=lambda path: (len(left[path] - reached), -path.stat().st_size))
        if not left[best] - reached:
            break
        chosen.append(best)
        reached |= left.pop(best)
    return chosen, len(reached)


def main(arguments):
    most = 40
    if "--" in arguments:
        most = int(arguments[arguments.index("--") + 1])
        arguments = arguments[:arguments.index("--")]
    fuzzer, corpus, *found = arguments
    corpus = pathlib.Path(corpus)
    corpus.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        chosen, reached = pick(edges(pathlib.Path(fuzzer).resolve(), [corpus, *found], work), most)
        new = work / "new"
        new.mkdir()
        for path in chosen:
            name = path.name if "-" in path.name else path.name[:12]
            shutil.copyfile(path, new / name)
        shutil.rmtree(corpus)
        shutil.copytree(new, corpus)
    print(f"{len(chosen)} inputs, {sum(p.stat().st_size for p in corpus.iterdir())} bytes, {reached} edges")


main(sys.argv[1:])
