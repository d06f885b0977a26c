# SPDX-License-Identifier: Apache-2.0
"""Builds the package without anything to download: a wheel is a zip file, an sdist a tar file (PEP 517, PEP 660)."""
import base64
import hashlib
import io
import pathlib
import re
import tarfile
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent
SOURCE = ROOT / "src"
TEXT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
TIME = (2020, 1, 1, 0, 0, 0)  # the same files make the same archive


def setting(name):
    return re.search(rf'^{name} = "([^"]*)"', TEXT, re.M).group(1)


NAME, VERSION = setting("name"), setting("version")
INFO = f"{NAME}-{VERSION}.dist-info"


def metadata():
    classifiers = re.findall(r'^    "([^"]+ :: [^"]+)",', TEXT, re.M)
    lines = ["Metadata-Version: 2.1", f"Name: {NAME}", f"Version: {VERSION}", f"Summary: {setting('description')}",
             "License: Apache-2.0", f"Requires-Python: {setting('requires-python')}", "Description-Content-Type: text/markdown",
             *(f"Classifier: {name}" for name in classifiers)]
    return "\n".join(lines) + "\n\n" + (ROOT / "README.md").read_text(encoding="utf-8")


def info_files():
    points = "".join(f"[{group}]\n{name} = {target}\n" for group, name, target in
                     re.findall(r'^\[project\.entry-points\.(\w+)\]\n(\w+) = "([^"]+)"', TEXT, re.M))
    return {f"{INFO}/METADATA": metadata(), f"{INFO}/entry_points.txt": points,
            f"{INFO}/WHEEL": "Wheel-Version: 1.0\nGenerator: sandglass\nRoot-Is-Purelib: true\nTag: py3-none-any\n"}


def package_files():
    found = sorted(path for path in SOURCE.rglob("*") if path.suffix == ".py" or path.name == "py.typed")
    return {path.relative_to(SOURCE).as_posix(): path.read_bytes() for path in found}


def write_wheel(directory, files):
    name = f"{NAME}-{VERSION}-py3-none-any.whl"
    record = []
    with zipfile.ZipFile(pathlib.Path(directory) / name, "w", zipfile.ZIP_DEFLATED) as wheel:
        for path, data in files.items():
            data = data.encode() if isinstance(data, str) else data
            wheel.writestr(zipfile.ZipInfo(path, TIME), data, zipfile.ZIP_DEFLATED)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record.append(f"{path},sha256={digest},{len(data)}\n")
        wheel.writestr(zipfile.ZipInfo(f"{INFO}/RECORD", TIME), "".join(record) + f"{INFO}/RECORD,,\n")
    return name


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    return write_wheel(wheel_directory, {**package_files(), **info_files()})


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    return write_wheel(wheel_directory, {f"{NAME}.pth": f"{SOURCE}\n", **info_files()})


def build_sdist(sdist_directory, config_settings=None):
    top = f"{NAME}-{VERSION}"
    files = {f"src/{path}": data for path, data in package_files().items()}
    for path in ("pyproject.toml", "README.md", "build_backend.py"):
        files[path] = (ROOT / path).read_bytes()
    files["PKG-INFO"] = metadata().encode()
    with tarfile.open(pathlib.Path(sdist_directory) / f"{top}.tar.gz", "w:gz") as archive:
        for path, data in sorted(files.items()):
            member = tarfile.TarInfo(f"{top}/{path}")
            member.size, member.mode, member.mtime = len(data), 0o644, 1577836800
            archive.addfile(member, io.BytesIO(data))
    return f"{top}.tar.gz"
