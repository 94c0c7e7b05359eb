"""Medians and spreads of measured times, and ratios of contestants that were measured in turns.
Standard library only.
"""

import statistics


def percentiles(microseconds):
    """Median, 10th and 90th percentile."""
    ordered = sorted(microseconds)
    return {
        "median_us": statistics.median(ordered),
        "low_us": ordered[len(ordered) // 10],
        "high_us": ordered[-1 - len(ordered) // 10],
        "repetitions": len(ordered),
    }


def ratio(slower, faster):
    """How many times as long `slower` takes as `faster`: median, least and most over the turns that
    both made.
    """
    ratios = [
        slow / fast for slow, fast in zip(slower["turns_us"], faster["turns_us"], strict=False)
    ]
    return {
        "median": statistics.median(ratios),
        "low": min(ratios),
        "high": max(ratios),
        "turns": len(ratios),
    }
