"""Marks of tests that need what not every machine has."""

import shutil

import pytest

import browser
import disassembly
from ladder.executors.cuda import nvrtc

COMPILER = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ (Debian package: g++)")
NVRTC = pytest.mark.skipif(
    not nvrtc.installed(), reason="NVRTC is not installed (envs/kernels.txt)"
)
DISASSEMBLER = pytest.mark.skipif(
    not (nvrtc.installed() and disassembly.installed()), reason="no disassembler (envs/kernels.txt)"
)
BROWSER = pytest.mark.skipif(
    browser.find() is None, reason="no Chromium found (Debian package: chromium)"
)
