// The axes of charts, for charts.js and history_charts.js: the same kinds as in ladder/pages/charts.py.
const axes = (() => {
  const forward = {
    linear: value => value,
    log: (value, least) => Math.log(Math.max(value, least)),
    error: (value, least) => -Math.log(Math.max(1 - value, least)),
  };
  const backward = {linear: value => value, log: Math.exp, error: value => 1 - Math.exp(-value)};
  const even = (low, high, count) => {
    const rough = (high - low) / count;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map(factor => factor * power).find(one => one >= rough * (1 - 1e-9));
    const found = [];
    for (let at = Math.ceil(low / step - 1e-9); at * step <= high + 1e-9 * step; at++) found.push(Number((at * step).toPrecision(12)));
    return found;
  };
  const powers = (low, high, decades = 3) => {   // with 2 and 5 times them where there are fewer decades
    const found = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++) {
      for (const factor of high < 10 ** decades * low ? [1, 2, 5] : [1]) found.push(Number((factor * 10 ** power).toPrecision(1)));
    }
    return found.filter(value => value >= low * (1 - 1e-9) && value <= high * (1 + 1e-9));
  };
  const ticksOf = (axis, kind, low, high, count) => {
    if (axis.ticks) return axis.ticks.map(([value]) => value);
    if (kind === "log" && low > 0) {
      const found = powers(low, high, count < 5 ? 1.5 : 3);
      return found.length > 2 ? found : even(low, high, count);
    }
    if (kind !== "error") return even(low, high, count);
    const rates = powers(Math.max(1 - high, 2 * axis.least), 1 - low).map(rest => Number((1 - rest).toPrecision(12)));
    const levels = (rates.length > 2 ? rates : even(low, high, count)).filter(value => value < 1 - 1.2 * axis.least);
    return high >= 1 ? [...levels, 1] : levels;
  };
  const tickText = (axis, value) => axis.ticks?.find(([at]) => at === value)?.[1]
    ?? (axis.percent ? `${Number((100 * value).toPrecision(6))}\u202f%`
      : Math.abs(value) >= 1e6 || (value && Math.abs(value) < 1e-4) ? value.toExponential().replace("+", "")
        : value.toLocaleString("en", {maximumFractionDigits: 6}));
  const written = (axis, value) => axis.percent ? `${(100 * value).toFixed(1)}\u202f%`
    : Number.isInteger(value) ? value.toLocaleString("en") : String(Number(value.toPrecision(4)));

  return {backward, forward, ticksOf, tickText, written};
})();
