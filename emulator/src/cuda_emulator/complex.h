// Complex numbers under the names of C++, Thrust and CuPy; included where a file mentions them.
#pragma once
#include <complex>

EMULATOR_SPECIAL(std::complex<float>, "complex64")
EMULATOR_SPECIAL(std::complex<double>, "complex128")
namespace thrust {
using std::complex;
}
using std::complex;
