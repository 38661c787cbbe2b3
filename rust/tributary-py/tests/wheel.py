"""wheel.py FOLDER HEADER: the wheel in FOLDER holds what it should, and nothing of this machine."""

import re
import sys
import zipfile
from pathlib import Path

EXPECTED = [
    "tributary/__init__.py",
    "tributary/_errors.py",
    "tributary/_native.abi3.so",
    "tributary/_native.pyi",
    "tributary/_nccl.py",
    "tributary/_run.py",
    "tributary/_types.py",
    "tributary/info.py",
    "tributary/py.typed",
    "tributary/torch/__init__.py",
    "tributary/torch/_average.py",
    "tributary/torch/_hooks.py",
    "tributary/torch/_meeting.py",
    "tributary/torch/_sparse.py",
]


def version(header: str) -> str:
    """Of the C library, which the package has, too."""
    return ".".join(
        re.findall(r"#define TRIB_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)", Path(header).read_text())
    )


def main(folder: str, header: str) -> None:
    (path,) = Path(folder).glob("*.whl")
    expected = rf"tributary_ccl-{re.escape(version(header))}-cp311-abi3-linux_\w+\.whl"
    assert re.fullmatch(expected, path.name), f"{path.name}; expected {expected}"
    with zipfile.ZipFile(path) as wheel:
        names = sorted(wheel.namelist())
        package = [name for name in names if name.startswith("tributary/")]
        assert package == EXPECTED, f"{package}; expected {EXPECTED}"
        others = [name for name in names if not name.startswith(("tributary/", "tributary_ccl-"))]
        assert not others, others
        assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names), names
        home, here = str(Path.home()), str(Path(header).resolve().parent.parent)
        for name in names:
            content = wheel.read(name)
            for word in {home, here, sys.prefix}:
                assert f"{word}/".encode() not in content, f"{name} names {word}"
    print(f"{path.name}: {len(names)} files, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main(*sys.argv[1:])
