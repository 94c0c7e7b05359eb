"""The fixture `check_kernel` of pytest, which comes with the package.

    def test_reverse(check_kernel):
        x, y = np.arange(128, dtype=np.float32), np.zeros(128, np.float32)
        check_kernel("reverse.cu", "reverse", (2,), (64,), (x, y))
        assert ...

A file is looked for beside the test. Notes become warnings of the test.
"""

import shutil
import warnings

import pytest


class KernelNote(UserWarning):
    """A note of a check, which is no error."""


@pytest.fixture
def check_kernel(request):
    """A function of (file, kernel, grid, block, args, shared_mem=0, load=(), **options): load, the
    options and the folders of cuda_emulator.load; options, those of cuda_emulator.check. It returns
    the Report or raises KernelFault.
    """
    import cuda_emulator  # when it is used: the plugin is in every run of pytest

    if shutil.which("g++") is None:
        pytest.skip("no g++ (Debian package: g++)")

    def check(file, kernel, grid, block, args, shared_mem=0, load=(), **options):
        function = cuda_emulator.load(request.path.parent / file, *load).get_function(kernel)
        report = cuda_emulator.watched.check(function, grid, block, args, shared_mem, **options)
        for note in report.notes:
            warnings.warn(str(note), KernelNote, stacklevel=2)
        return report

    return check
