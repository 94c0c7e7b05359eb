"""Its place of before; the program is tools/compare_weights.py."""

import sys

if __name__ == "__main__":
    sys.exit("compare_weights.py has moved; run: python workflow/scripts/tools/compare_weights.py")
