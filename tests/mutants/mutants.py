#!/usr/bin/env python3
"""Do the tests notice bugs? Puts each bug of this folder into a copy of the sources and runs a test.

    tests/mutants/mutants.py                 all of them: each must turn its test red
    tests/mutants/mutants.py gtopk-* NAME    some of them
    tests/mutants/mutants.py --published     those that the published code has
    tests/mutants/mutants.py --check         only whether each can still be put in
    ctest -C mutants -L mutants              the last two, in a build folder

A *.txt file holds the bugs of one area. A bug:

    [its-name]
    What is wrong, in a sentence or two; "published code" among the words if it is found there.
    run: TRIB_TEST_QUICK=1 sparse_host_test 3     one or more: each must turn red by itself
    in: gtopk.c run_gtopk                         a file (cpu/cut.c where there are two) and a function
                                                  or macro in it
    - a fragment of its code                      found there exactly once, however it is spaced
    + what it becomes                             nothing, if there is no such line

Fragments are as short as they can be, so most changes of the sources leave them as they are. One
that no longer fits is reported, not passed over: by --check.

A test is red if it prints a failed check, ends with a failure, crashes, or does not end in time.
The copy and its build (host backend, -O1) stay in --work for the next run. Exit status 0: all red.
"""
import argparse
import fnmatch
import os
import pathlib
import re
import shutil
import subprocess
import sys
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
COPIED = ("benches", "csrc", "include", "kernels", "tests", "CMakeLists.txt", "LICENSE", "README.md")
SECONDS = 120  # that a test may take


class Stale(Exception):
    """The description does not fit the sources."""


TOKEN = re.compile(r'"(?:\\.|[^"\\])*"|\w+|[^\w\s]')


def fragment(text):
    """A pattern that finds the tokens of `text`, whatever blanks and line ends (a macro's, too) are
    between them."""
    tokens = [re.escape(token) for token in TOKEN.findall(text)]
    pattern = r"[\s\\]*".join(tokens)
    return re.compile((r"\b" if text[0].isidentifier() else "") + pattern)


def place(text, name):
    """Where the function or macro `name` is defined: (begin, end). All of the text without a name."""
    if not name:
        return 0, len(text)
    macro = re.search(rf"^#define {name}\b(?:.*\\\n)*.*", text, re.M)
    function = re.search(rf"^(?![#\s])[^;{{}}\n]*\b{name}\([^;{{}}]*\)\s*\n\{{\n.*?^\}}", text, re.M | re.S)
    found = macro or function
    if not found:
        raise Stale(f"no function or macro {name}")
    return found.span()


class Mutant:
    """One bug: what it is, the tests that must turn red, and the changes (file, function, old, new)."""

    def __init__(self, name, lines):
        self.name, self.about, self.runs, self.changes = name, [], [], []
        kind = ""
        for line in lines:
            if line.startswith("run: "):
                self.runs.append(line[5:].strip())
            elif line.startswith("in: "):
                file, _, function = line[4:].strip().partition(" ")
            elif line[:2] in ("- ", "+ "):
                if line[0] == "-" and kind != "-":
                    self.changes.append((file, function, [], []))
                self.changes[-1][2 if line[0] == "-" else 3].append(line[2:])
            else:
                self.about.append(line.strip())
            kind = line[0]
        if not (self.about and self.runs and self.changes):
            raise Stale(f"{name}: says not what is wrong, what to run, or what to change")

    def apply(self, files, read):
        """The changed texts by file, of what read(file) gives."""
        texts = {}
        for file, function, old, new in self.changes:
            try:
                path = only(files.get(file, []), f"files {file}")
                text = texts.get(path) or read(path).decode()
                begin, end = place(text, function)
                found = list(fragment(" ".join(old)).finditer(text, begin, end))
                at = only(found, "such fragments")
            except Stale as problem:
                where = f"{file} {function}".strip()
                raise Stale(f"{self.name}: in {where}: {problem}: {' '.join(old)}") from None
            # A macro goes on where its lines end with a backslash.
            joint = " \\\n" if text[begin:].startswith("#define") else "\n"
            texts[path] = text[: at.start()] + joint.join(new) + text[at.end():]
        return texts


def only(found, what):
    if len(found) != 1:
        raise Stale(f"{len(found)} {what}")
    return found[0]


def sources():
    """The paths of all C sources by their names, with and without the folder."""
    files = {}
    for path in [path for folder in ("benches", "csrc", "kernels") for path in (ROOT / folder).rglob("*.[ch]")]:
        for name in (path.name, f"{path.parent.name}/{path.name}"):
            files.setdefault(name, []).append(str(path.relative_to(ROOT)))
    return files


def read_source(name):
    return (ROOT / name).read_bytes()


def read_all(patterns, published):
    """(the mutants that fit the sources, what is wrong with the others)."""
    mutants, problems, files = [], [], sources()
    for path in sorted(HERE.glob("*.txt")):
        for name, text in re.findall(r"^\[([\w-]+)\]\n(.*?)(?=\n\[|\Z)", path.read_text(), re.M | re.S):
            if patterns and not any(fnmatch.fnmatch(name, pattern) for pattern in patterns):
                continue
            if published and "published code" not in " ".join(text.split()):
                continue
            try:
                mutant = Mutant(name, text.strip().splitlines())
                mutant.apply(files, read_source)
                mutants.append(mutant)
            except (Stale, OSError) as problem:
                problems.append(str(problem))
    return mutants, problems


class Workplace:
    """A copy of the sources and its build."""

    def __init__(self, folder, jobs):
        self.tree, self.build, self.jobs = folder / "tree", folder / "build", jobs
        self.originals, self.mutated = {}, set()

    def write(self, name, data):
        """Files that are the same stay untouched, so that little is compiled again."""
        path = self.tree / name
        if path.exists() and path.read_bytes() == data:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    def prepare(self):
        names = {
            str(path.relative_to(ROOT))
            for part in COPIED
            for path in ([ROOT / part] if (ROOT / part).is_file() else (ROOT / part).rglob("*"))
            if path.is_file() and "__pycache__" not in path.parts
        }
        self.originals = {name: read_source(name) for name in names}
        for name, data in self.originals.items():
            self.write(name, data)
        for path in [path for path in self.tree.rglob("*") if path.is_file()]:
            if str(path.relative_to(self.tree)) not in self.originals:
                path.unlink()
        command = ["cmake", "-S", self.tree, "-B", self.build, "-DCMAKE_BUILD_TYPE=Debug",
                   "-DCMAKE_C_FLAGS=-O1 -w -g0", "-DTRIBUTARY_NCCL=OFF", "-DTRIBUTARY_RUST=OFF",
                   "-DTRIBUTARY_BENCHES=OFF", "-DBUILD_SHARED_LIBS=OFF"]
        if not (self.build / "CMakeCache.txt").exists() and shutil.which("ninja"):
            command += ["-G", "Ninja"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

    def put(self, texts):
        """These texts, and the originals where the last ones were."""
        for name in self.mutated - set(texts):
            self.write(name, self.originals[name])
        for name, text in texts.items():
            self.write(name, text.encode())
        self.mutated = set(texts)

    def make(self, program):
        """None, or what the compiler says."""
        command = ["cmake", "--build", self.build, "--target", program, "-j", str(self.jobs)]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        return None if done.returncode == 0 else done.stdout

    def run(self, line):
        """What was wrong first; None if nothing was."""
        words = line.split()
        environment = dict(os.environ)
        while "=" in words[0]:
            name, value = words.pop(0).split("=", 1)
            environment[name] = value
        # Most lie in tests/, some in a folder there.
        program = only([path for path in (self.build / "tests").rglob(words[0]) if path.is_file()],
                       f"programs {words[0]}")
        process = subprocess.Popen([program] + words[1:], text=True,
                                   errors="replace", env=environment, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT)
        late = threading.Event()
        timer = threading.Timer(SECONDS, lambda: (late.set(), process.kill()))
        timer.start()
        failed = None
        for text in process.stdout:
            if "] failed: " in text:
                failed = re.sub(r"^.*?/tests/", "tests/", text.strip())
                process.kill()
                break
        process.stdout.close()
        status = process.wait()
        timer.cancel()
        if failed is None and late.is_set():
            failed = f"does not end in {SECONDS} s"
        if failed is None and status != 0:
            failed = f"ends with {status}"
        return failed


def program_of(line):
    return next(word for word in line.split() if "=" not in word)


def try_one(workplace, run, texts):
    """(what the compiler says, what was wrong first), each None if there is nothing."""
    workplace.put(texts)
    complaint = workplace.make(program_of(run))
    return (complaint, None) if complaint else (None, workplace.run(run))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("names", nargs="*", help="of mutants, or patterns; all if there is none")
    parser.add_argument("--published", action="store_true", help="only bugs of the published code")
    parser.add_argument("--check", action="store_true", help="only whether each fits the sources")
    parser.add_argument("--work", type=pathlib.Path, default=ROOT / "build" / "mutants")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    mutants, problems = read_all(options.names, options.published)
    for problem in problems:
        print(problem)
    if options.check or problems or not mutants:
        print(f"mutants: {len(mutants)} fit the sources, {len(problems)} do not")
        return 1 if problems or not mutants else 0
    workplace = Workplace(options.work.resolve(), options.jobs)
    workplace.prepare()
    for run in sorted({run for mutant in mutants for run in mutant.runs}):
        complaint, failed = try_one(workplace, run, {})
        if complaint or failed:
            print(f"without any bug: {run}: {complaint or failed}")
            return 1
    wrong, files = 0, sources()
    for mutant in mutants:
        texts = mutant.apply(files, workplace.originals.get)
        for run in mutant.runs:
            start = time.monotonic()
            complaint, failed = try_one(workplace, run, texts)
            state = "BROKEN" if complaint else "red" if failed else "GREEN"
            wrong += state != "red"
            print(f"{state:6} {mutant.name:32} {time.monotonic() - start:5.1f} s  {run}", flush=True)
            print(f"       {complaint or failed or ' '.join(mutant.about)}", flush=True)
    print(f"mutants: {sum(len(mutant.runs) for mutant in mutants) - wrong} red, {wrong} not")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
