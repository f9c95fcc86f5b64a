"""setup.py - the wheel of the package quire.

_fast.c is compiled for the stable ABI of CPython 3.11 where a compiler and Python's headers are at hand: such a
wheel is of this machine's platform, for Python 3.11 and newer. Without them, for an older Python, or with QUIRE_PURE=1
in the environment nothing is compiled, and the wheel is of any platform.

With QUIRE_BUNDLE=/path/to/libquire.so.1 in the environment the wheel brings that library along, and is of this machine's
platform. What libquire itself needs (liburing2, libxxhash0, libroaring0) still comes from the system. Without it the
package finds the system's libquire.
"""
import os
import shutil
import sys

from setuptools import Extension, setup
from setuptools.command.build_py import build_py
from wheel.bdist_wheel import bdist_wheel

LIBRARY = os.environ.get("QUIRE_BUNDLE")
EXTENSIONS = [] if os.environ.get("QUIRE_PURE") or sys.version_info < (3, 11) else [
    Extension("quire._fast", ["_fast.c"], optional=True, py_limited_api=True)]


class BuildWithLibrary(build_py):
    def run(self):
        super().run()
        folder = os.path.join(self.build_lib, "quire", "_bundled")
        shutil.rmtree(folder, ignore_errors=True)
        if LIBRARY:
            os.makedirs(folder)
            shutil.copyfile(LIBRARY, os.path.join(folder, "libquire.so.1"))


class WheelOfPlatform(bdist_wheel):
    """Its name says what is in it, which is known once the extension has been compiled, or has not."""

    def run(self):
        self.run_command("build_ext")
        self.compiled = any(map(os.path.exists, self.get_finalized_command("build_ext").get_outputs()))
        if not self.compiled:
            self.distribution.ext_modules = []
        self.root_is_pure = not (LIBRARY or self.compiled)
        super().run()

    def get_tag(self):
        return ("cp311", "abi3") + super().get_tag()[2:] if self.compiled else ("py3", "none", super().get_tag()[2])


setup(cmdclass={"build_py": BuildWithLibrary, "bdist_wheel": WheelOfPlatform}, ext_modules=EXTENSIONS)
