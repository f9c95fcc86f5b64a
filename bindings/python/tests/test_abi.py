"""The declarations for ctypes are those of include/quire.h: by the generator, and by a C compiler."""
import ctypes
import os
import shutil
import subprocess
import sys

import pytest

import quire
from quire import _abi, errors

HERE = os.path.dirname(os.path.abspath(__file__))
TREE = os.path.join(HERE, "..", "..", "..")
HEADER = os.path.join(TREE, "include", "quire.h")

needs_tree = pytest.mark.skipif(not os.path.exists(HEADER), reason="the sources of Quire are not beside the tests")


@needs_tree
def test_generated_from_this_header():
    done = subprocess.run([sys.executable, os.path.join(HERE, "..", "make_abi.py"), "--check"], stderr=subprocess.PIPE)
    assert done.returncode == 0, done.stderr.decode()


@needs_tree
@pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no gcc")
def test_layout_is_the_compilers(folder):
    lines = ["#include <quire.h>", "#include <stdio.h>", "int main(void) {"]
    expected = []
    for struct in _abi.STRUCTS:
        name = struct.__name__
        lines.append('printf("%%zu\\n", sizeof(struct %s));' % name)
        expected.append(("sizeof " + name, ctypes.sizeof(struct)))
        for field, _ in struct._fields_:
            lines.append('printf("%%zu %%zu\\n", offsetof(struct %s, %s), sizeof((struct %s *)0)->%s);'
                         .replace("sizeof((struct %s *)0)->%s", "sizeof(((struct %s *)0)->%s)")
                         % (name, field, name, field))
            at = getattr(struct, field)
            expected.append(("%s.%s" % (name, field), at.offset, at.size))
    for enum, values in _abi.ENUMS.items():
        for name, value in values.items():
            lines.append('printf("%%d\\n", (int)%s);' % name)
            expected.append((name, value))
    for name, (number, _) in _abi.ERRORS.items():
        lines.append('printf("%%d\\n", (int)QUIRE_E%s);' % name)
        expected.append((name, -number))
    lines.append("return 0; }")
    source, program = os.path.join(folder, "layout.c"), os.path.join(folder, "layout")
    with open(source, "w") as f:
        f.write("\n".join(lines))
    subprocess.run(["gcc", "-std=c11", "-I", os.path.dirname(HEADER), "-o", program, source], check=True)
    printed = subprocess.run([program], check=True, stdout=subprocess.PIPE).stdout.decode().splitlines()
    got = [(what[0], *map(int, line.split())) for what, line in zip(expected, printed)]
    assert got == expected and len(printed) == len(expected) > 300


def test_every_error_number_has_its_class():
    classes = {errors._BY_CODE[-number] for number, _ in _abi.ERRORS.values()}
    assert len(classes) == len(_abi.ERRORS) and all(issubclass(c, quire.Error) for c in classes)
    for name, (number, _) in _abi.ERRORS.items():
        made = errors._BY_CODE[-number]("a sentence", "a_function")
        assert (made.name, made.code, str(made), made.where) == ("QUIRE_E" + name, -number, "a sentence", "a_function")
        assert getattr(quire, type(made).__name__) is type(made)


@pytest.mark.parametrize("own, pythons", [
    (quire.WrongDimension, ValueError), (quire.WrongType, TypeError), (quire.NotFinite, ValueError),
    (quire.NotFound, KeyError), (quire.NoFile, FileNotFoundError), (quire.PermissionDenied, PermissionError),
    (quire.Exists, FileExistsError), (quire.NoMemory, MemoryError), (quire.Timeout, TimeoutError),
    (quire.Corrupt, quire.FormatError)])
def test_errors_are_pythons_too(own, pythons):
    import pickle
    made = own("it is so")
    assert isinstance(made, pythons) and isinstance(made, quire.Error)
    again = pickle.loads(pickle.dumps(made))
    assert type(again) is own and str(again) == "it is so"


def test_version():
    assert quire.version() == quire.__version__


def load_with(folder, environment, code="import quire"):
    env = dict(os.environ, **environment)
    return subprocess.run([sys.executable, "-c", code], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def test_a_library_that_is_not_there_is_named(folder):
    done = load_with(folder, {"QUIRE_LIBRARY": os.path.join(folder, "nowhere.so")})
    assert done.returncode == 1 and b"nowhere.so" in done.stderr and b"QUIRE_LIBRARY=" in done.stderr


@pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no gcc")
@pytest.mark.parametrize("version, size, says", [("9.8.7", 64, b"it is version 9.8.7"),
                                                 (quire.__version__, 8, b"has 8 bytes, ")])
def test_another_library_is_refused(folder, version, size, says):
    """Its options have another size, or it has another version: nothing is misread."""
    lines = ["#include <stddef.h>"]
    for name in _abi.FUNCTIONS:
        if name == "quire_version":
            lines.append('const char *quire_version(void) { return "%s"; }' % version)
        elif name.endswith("_options_init"):
            lines.append("void %s(void *o) { *(size_t *)o = %d; }" % (name, size))
        else:
            lines.append("int %s(void) { return 0; }" % name)
    source, library = os.path.join(folder, "other.c"), os.path.join(folder, "other.so")
    with open(source, "w") as f:
        f.write("\n".join(lines))
    subprocess.run(["gcc", "-shared", "-fPIC", "-w", "-o", library, source], check=True)
    done = load_with(folder, {"QUIRE_LIBRARY": library})
    assert done.returncode == 1 and says in done.stderr, done.stderr
