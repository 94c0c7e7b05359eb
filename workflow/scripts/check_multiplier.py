"""Its place of before; the program is tools/check_multiplier.py."""

import sys

if __name__ == "__main__":
    sys.exit(
        "check_multiplier.py has moved; run: python workflow/scripts/tools/check_multiplier.py"
    )
