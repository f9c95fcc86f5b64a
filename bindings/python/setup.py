"""setup.py - with QUIRE_BUNDLE=/path/to/libquire.so.1 in the environment, the wheel brings that library along.

Such a wheel is of this machine's platform. What libquire itself needs (liburing2, libxxhash0, libroaring0) still comes
from the system. Without QUIRE_BUNDLE the wheel is of any platform, and finds the system's libquire.
"""
import os
import shutil

from setuptools import setup
from setuptools.command.build_py import build_py
from wheel.bdist_wheel import bdist_wheel

LIBRARY = os.environ.get("QUIRE_BUNDLE")


class BuildWithLibrary(build_py):
    def run(self):
        super().run()
        folder = os.path.join(self.build_lib, "quire", "_bundled")
        shutil.rmtree(folder, ignore_errors=True)
        if LIBRARY:
            os.makedirs(folder)
            shutil.copyfile(LIBRARY, os.path.join(folder, "libquire.so.1"))


class WheelOfPlatform(bdist_wheel):
    def finalize_options(self):
        super().finalize_options()
        self.root_is_pure = not LIBRARY

    def get_tag(self):
        return ("py3", "none", super().get_tag()[2])


setup(cmdclass={"build_py": BuildWithLibrary, "bdist_wheel": WheelOfPlatform})
