// 95 % intervals as ladder/pages/intervals.py and spread.py have them, the mean of several runs' decisions, and how much of a number
// a setting explains: plain functions of numbers, for runs.js and chosen.js.
const statistics = (() => {
  const Z = 1.959963984540054;
  const mean = values => values.reduce((sum, value) => sum + value, 0) / values.length;
  const deviation = (values, middle) => values.every(value => value === values[0]) ? 0   // whatever the mean is rounded to
    : Math.sqrt(values.reduce((sum, value) => sum + (value - middle) ** 2, 0) / (values.length - 1));

  // key -> the items with it, in their order.
  function grouped(items, keyOf) {
    const parts = new Map();
    for (const item of items) {
      const key = keyOf(item);
      if (parts.has(key)) parts.get(key).push(item); else parts.set(key, [item]);
    }
    return parts;
  }

  // [low, high] of an accuracy on n images (Wilson).
  function wilson(accuracy, n) {
    const middle = (accuracy + Z * Z / (2 * n)) / (1 + Z * Z / n);
    const reach = Z / (1 + Z * Z / n) * Math.sqrt(accuracy * (1 - accuracy) / n + Z * Z / (4 * n * n));
    return [accuracy === 0 ? 0 : middle - reach, accuracy === 1 ? 1 : middle + reach];
  }

  // Differences: {value, ends, paired}. On the same n images, of which one alone gets `won`, the other alone `lost` (Bonett and Price).
  function paired(won, lost, n) {
    const [more, fewer] = [(won + 1) / (n + 2), (lost + 1) / (n + 2)];
    const reach = Z * Math.sqrt((more + fewer - (more - fewer) ** 2) / (n + 2));
    return {value: (won - lost) / n, ends: [Math.max(-1, more - fewer - reach), Math.min(1, more - fewer + reach)], paired: true, won, lost};
  }

  // On different images (Newcombe).
  function unpaired(first, n, other, m) {
    const [[low, high], [least, most]] = [wilson(first, n), wilson(other, m)];
    const value = first - other;
    return {value, ends: [value - Math.hypot(first - low, most - other), value + Math.hypot(high - first, other - least)], paired: false};
  }

  // {mean, deviation, n, ends} of several runs (Student's t; t: quantiles by degrees of freedom), cut at what a mean can be.
  function spread(values, t, least = -Infinity, most = Infinity) {
    const [n, middle] = [values.length, mean(values)];
    const off = n > 1 ? deviation(values, middle) : null;
    const reach = off ? (t[n - 2] ?? Z) * off / Math.sqrt(n) : null;
    return {mean: middle, deviation: off, n, ends: reach && [Math.max(least, middle - reach), Math.min(most, middle + reach)]};
  }

  // Decimals of a value in percent that its interval carries: two digits of half its width up to 35, else one.
  function decimals([low, high]) {
    const half = 50 * (high - low);
    if (half <= 0) return 3;
    const exponent = Math.floor(Math.log10(half));
    const leading = Number((half / 10 ** exponent).toFixed(2));
    return Math.min(Math.max(0, (leading < 3.55 ? 1 : 0) - exponent), 3);
  }

  // The places of the labels that decisions name: values[i] of a class each, or with `pairs` of a pair of classes, which vote.
  function named(values, rows, classes, pairs) {
    const width = pairs ? classes * (classes - 1) / 2 : classes;
    return Array.from({length: rows}, (_, row) => {
      let scores = values.subarray(row * width, (row + 1) * width);
      if (pairs) {
        const votes = new Uint16Array(classes);
        let at = 0;
        for (let i = 0; i < classes; i++) for (let j = i + 1; j < classes; j++) votes[scores[at++] > 0 ? i : j]++;
        scores = votes;
      }
      let best = 0;
      for (let place = 1; place < classes; place++) if (scores[place] > scores[best]) best = place;
      return best;
    });
  }

  // The mean of arrays of decisions of one length, in float64.
  function average(arrays) {
    const sum = Float64Array.from(arrays[0]);
    for (const values of arrays.slice(1)) for (let at = 0; at < sum.length; at++) sum[at] += values[at];
    return sum.map(value => value / arrays.length);
  }

  // The share of the variance of `numbers` that groups explain, less what as many groups would by chance (epsilon squared), at least 0.
  // Of a setting of more numbers than GROUPS a group has numbers that follow each other. null: too few runs to say.
  const GROUPS = 4;
  function explained(settings, numbers) {
    const different = [...new Set(settings)];
    let group = value => value;
    if (different.length > GROUPS && different.every(value => typeof value === "number")) {
      const order = settings.map((_, at) => at).sort((a, b) => settings[a] - settings[b]);
      const place = new Map();
      order.forEach((at, rank) => { if (!place.has(settings[at])) place.set(settings[at], Math.floor(rank * GROUPS / order.length)); });
      group = value => place.get(value);
    }
    const parts = grouped(numbers.map((number, at) => [group(settings[at]), number]), ([part]) => part);
    const [n, k, middle] = [numbers.length, parts.size, mean(numbers)];
    const total = numbers.reduce((sum, value) => sum + (value - middle) ** 2, 0);
    if (k < 2 || n <= k + 1 || !total) return null;
    let within = 0;
    for (const pairs of parts.values()) {
      const own = mean(pairs.map(([, number]) => number));
      for (const [, number] of pairs) within += (number - own) ** 2;
    }
    return Math.max(0, 1 - within / (n - k) / (total / (n - 1)));
  }

  return {mean, grouped, wilson, paired, unpaired, spread, decimals, named, average, explained};
})();
