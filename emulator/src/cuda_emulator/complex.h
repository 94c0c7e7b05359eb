// Complex numbers under the names of C++, Thrust and CuPy; included where a file mentions them.
#pragma once
#include <complex>

EMULATOR_SPECIAL(std::complex<float>, "complex64")
EMULATOR_SPECIAL(std::complex<double>, "complex128")
namespace thrust {
using std::abs, std::arg, std::complex, std::conj, std::exp, std::norm, std::polar, std::sqrt;
}
using std::complex;
