// Draws every chart of every page as an SVG, from a description in JSON. What is on the screen, printed and saved is this drawing.
//
// An element of class "chart" with data-label, and in it a script of type application/json, is drawn when the page is loaded; a
// script draws with `new charts.Chart(element, description, {brush, pick})`, and again with update(description).
//
//   {title, x, y, series, by, names, square, zoom, sheet, nearest}
//   x, y     axes: {label, scale, zero, percent, range, names, rows}
//            scale    "linear"; "log"; "auto": linear, logarithmic where values span more than a factor of 20, switchable; "error":
//                     of shares, logarithmic in 1 - value; "time": of milliseconds since 1970
//            zero     the axis begins at 0; range: [low, high] in place of that of the values
//            percent  values are shares, "linear" or "error", switchable
//            names    a band: values are names, each with a slot; those of the series where it is []
//            rows     (of y) a band of rows with texts: [{name, note, text, small}]; values are their numbers
//   series   [{mark, name, key, colour, label, x, y, low, high, by, id, text, look, size, picture, floor}], lists by point
//            mark     "dots" (the default) or "line"; colour: 1 to 10, "rest" (grey), "level" (a reference line), or "step-1"
//                     to "step-5" (pale to strong); key: what the series is in a legend; label: short, at the end of a line
//            low, high  the ends of an interval, along x where y has rows, else along y
//            id       what brush, pick and data-run of a page name a point by; text: its tip; size: of its mark; picture: on the sheet
//            look     of a mark: "", "ring", "tick", or "span", an interval alone; floor: points that do not stretch the axis
//   by       names of the horizontal axes of lines; series.by has for each a factor of x, or a list
//   names    [{name, x, y}] written into the plot, apart from each other
//   square   a map: as high as wide, without axes
//   sheet    small pictures on one: {image, columns, rows, width, height}, image "" for the page's --sheet; nearest: by picture
//            those that are most like it; thumb of a series: the one in the legend; listed false: the series is not in it
//   brush    called with the ids in a rectangle that is dragged or spanned by Shift and the arrow keys, null for none; without
//            it a rectangle is zoomed into. pick: called with the id of a point that is pressed, by Enter too
const charts = (() => {
  const {svg} = saving;
  const SIZE = 13, LINE = 17, WIDTH = 480, HEIGHT = 310, LOW = 250;   // of text; narrower than WIDTH is a phone
  const LABELS = 8, SHARE = .32;    // lines have names at their ends if there are no more, and no longer ones
  const LOG_RATIO = 20, SMOOTHED = 20, WIDEST = 20, ZOOM = 1.6, FINGER = 48, FAR = 14, PICTURE = 72, NEIGHBOUR = 36, THUMB = 30;
  const STEPS = 5, COLOURS = 10;
  const DAY = 864e5, MOMENTS = [1e3, 1e4, 6e4, 3e5, 9e5, 36e5, 108e5, 216e5, DAY, 2 * DAY, 7 * DAY, 28 * DAY, 91 * DAY, 182 * DAY, 364 * DAY];   // between ticks
  // Outlines of marks, about 2 wide around (0, 0), by colour and by look.
  const MARKS = {
    1: "M1 0A1 1 0 1 1 -1 0A1 1 0 1 1 1 0Z", 2: "M-.88 -.88H.88V.88H-.88Z", 3: "M0 -1.2L1.1 .8H-1.1Z",
    4: "M0 -1.35L1.35 0L0 1.35L-1.35 0Z", 5: "M0 1.2L1.1 -.8H-1.1Z", 6: "M0 -1.2L1.14 -.37L.71 .97H-.71L-1.14 -.37Z",
    7: "M-.42 -1.3H.42V-.42H1.3V.42H.42V1.3H-.42V.42H-1.3V-.42H-.42Z",
    8: "M-.6 -1.2L0 -.6L.6 -1.2L1.2 -.6L.6 0L1.2 .6L.6 1.2L0 .6L-.6 1.2L-1.2 .6L-.6 0L-1.2 -.6Z",
    9: "M0 -1.5L.4 -.4L1.5 0L.4 .4L0 1.5L-.4 .4L-1.5 0L-.4 -.4Z", 10: "M1.2 0L-.8 1.1V-1.1Z",
    tick: "M-.3 -2.2H.3V2.2H-.3Z", span: "M-1.6 -.7H1.6V.7H-1.6Z", below: "M-1.2 0L.8 1.1V-1.1Z",
  };
  const outline = (colour, look) => MARKS[look] ?? MARKS[colour] ?? MARKS[1];

  const {element} = dom;
  const pen = document.createElement("canvas").getContext("2d");
  let font;   // asked for once
  const widthOf = text => {
    pen.font = font ??= `${SIZE}px ${getComputedStyle(document.body).fontFamily}`;
    return pen.measureText(text).width;
  };
  const text = (words, x, y, className = "", anchor = "start") =>
    svg("text", {x: round(x), y: round(y), class: className, "text-anchor": anchor}, words);
  const round = value => Math.round(100 * value) / 100;
  const cut = (words, width) => {   // with its whole in a title
    if (widthOf(words) <= width) return [words];
    let long = words.length;
    while (long > 3 && widthOf(`${words.slice(0, long)}…`) > width) long--;
    return [`${words.slice(0, long)}…`, svg("title", {}, words)];
  };
  const wrapped = (words, width) => words.split(" ").reduce((lines, word) => {
    const last = lines.at(-1);
    if (last !== undefined && widthOf(`${last} ${word}`) <= width) lines[lines.length - 1] = `${last} ${word}`;
    else lines.push(word);
    return lines;
  }, []);

  // Scales: functions that are linear along an axis; least: what 0, or the error rate 0, is drawn at.
  const forward = {
    linear: value => value,
    log: (value, least) => Math.log(Math.max(value, least)),
    error: (value, least) => -Math.log(Math.max(1 - value, least)),
  };
  const backward = {linear: value => value, log: Math.exp, error: value => 1 - Math.exp(-value)};
  forward.time = forward.linear;
  backward.time = backward.linear;

  const SCALES = {linear: "linear", log: "logarithmic", error: "expanded"};

  // What an axis can be switched to, the first one is shown; values: all that it holds.
  const kindsOf = (axis, values) => {
    if (axis.percent) return axis.scale === "error" ? ["error", "linear"] : ["linear", "error"];
    if (axis.scale !== "auto" && axis.scale !== "log") return [axis.scale ?? "linear"];
    const [low, high] = axis.range ?? [Math.min(...values), Math.max(...values)];
    if (axis.scale === "log") return [low > 0 && values.length ? "log" : "linear"];   // 0 has no logarithm
    return low <= 0 || !values.length ? ["linear"] : high > LOG_RATIO * low ? ["log", "linear"] : ["linear", "log"];
  };
  // {low, high, least} of all values; room: on either side, a share of the axis.
  const wholeOf = (axis, kind, values, room) => {
    const ends = axis.range ?? (values.length ? [Math.min(...values), Math.max(...values)] : [0, 1]);
    let [low, high] = ends;
    if (axis.range) return {low, high, least: Math.max(low, 1e-12)};
    if (axis.percent) {
      const missing = values.map(value => 1 - value).filter(rest => rest > 0);
      const least = Math.max(Math.min(.5, ...missing) / 2, 1e-6);
      const margin = kind === "linear" && !axis.zero ? Math.max(room * (high - low), .003) : 0;
      if (margin) return {low: Math.max(0, low - margin), high: Math.min(1, high + margin), least};
      low = axis.zero ? 0 : Math.max(0, 1 - 1.05 * Math.max(2 * least, ...missing));
      return {low, high: high >= 1 ? 1 : Math.min(1 - least, 1 - .8 * (1 - high)), least};
    }
    if (kind === "log") return {low: .8 * low, high: 1.1 * high, least: .8 * low};
    if (axis.zero) return {low: 0, high: (room ? 1.04 : 1) * high || 1, least: 1e-12};
    const reach = high - low > 1e-9 * Math.max(Math.abs(low), Math.abs(high)) ? room * (high - low)
      : kind === "time" ? 4e6 : Math.abs(low) / 2 || 1;
    return {low: low - reach, high: high + reach, least: 1e-12};
  };
  const placing = (kind, {low, high, least}, from, to) => {
    const [first, last] = [forward[kind](low, least), forward[kind](high, least)];
    return {
      kind, low, high, least, from, to,
      at: value => round(from + (forward[kind](value, least) - first) / (last - first) * (to - from)),
      value: pixel => backward[kind](first + (pixel - from) / (to - from) * (last - first)),
    };
  };

  const multiples = (low, high, step) => {
    const first = Math.ceil(low / step - 1e-9), many = Math.floor(high / step + 1e-9) - first + 1;
    return Array.from({length: Math.max(0, many)}, (_, at) => Number(((first + at) * step).toPrecision(12)));
  };
  const even = (low, high, count) => {
    const rough = (high - low) / count, power = 10 ** Math.floor(Math.log10(rough));
    return multiples(low, high, [1, 2, 5, 10].map(factor => factor * power).find(step => step >= rough * (1 - 1e-9)));
  };
  const powers = (low, high, decades) => {   // with 2 and 5 times them where there are fewer decades
    const from = Math.floor(Math.log10(low)), many = Math.ceil(Math.log10(high)) - from + 1;
    const factors = high < 10 ** decades * low ? [1, 2, 5] : [1];
    return Array.from({length: many}, (_, at) => factors.map(factor => Number((factor * 10 ** (from + at)).toPrecision(1)))).flat()
      .filter(value => value >= low * (1 - 1e-9) && value <= high * (1 + 1e-9));
  };
  // Ticks of an axis: [value, text].
  const ticksOf = (axis, {kind, low, high, least}, count, whole) => {
    if (axis.names) {
      const step = Math.ceil(axis.names.length / (2 * count));
      return axis.names.map((name, at) => [at + .5, name]).filter((_, at) => at % step === 0);
    }
    if (kind === "time") {
      const step = MOMENTS.find(one => (high - low) / one <= count) ?? (high - low) / count;
      const digits = step < 6e4 ? [11, 19] : step < DAY ? [5, 16] : [0, 10];
      return multiples(low, high, step).map(value => [value, new Date(value).toISOString().slice(...digits).replace("T", " ")]);
    }
    const round = kind === "log" ? powers(low, high, count < 5 ? 1.5 : 3) : [];
    const found = kind === "log" ? round.length > 2 ? round : powers(low, high, 3)
      : kind === "error" ? powers(Math.max(1 - high, 2 * least), 1 - low, 3).map(rest => Number((1 - rest).toPrecision(12))) : [];
    let values = found.length > 2 ? found : even(low, high, count);
    if (kind === "error") values = [...values.filter(value => value < 1 - 1.2 * least), ...high >= 1 ? [1] : []];
    if (whole) values = values.filter(Number.isInteger);
    return values.map(value => [value, tickText(axis, value)]);
  };
  const tickText = (axis, value) => axis.percent ? `${Number((100 * value).toPrecision(9))}\u202f%`
    : Math.abs(value) >= 1e6 || (value && Math.abs(value) < 1e-4) ? value.toExponential().replace("+", "")
      : value.toLocaleString("en", {maximumFractionDigits: 6});
  const written = (axis, value) => axis.names ? axis.names[Math.floor(value)]
    : axis.scale === "time" ? new Date(value).toISOString().slice(0, 16).replace("T", " ")
      : axis.percent ? `${(100 * value).toFixed(1)}\u202f%`
        : Number.isInteger(value) ? value.toLocaleString("en") : String(Number(value.toPrecision(4)));

  // Places along a curve, each at the mean height of those up to `reach` before and after it, fewer at the ends.
  const averaged = (places, reach) => places.map(([x], at) => {
    const many = Math.min(reach, at, places.length - 1 - at), around = places.slice(at - many, at + many + 1);
    return [x, round(around.reduce((sum, [, y]) => sum + y, 0) / around.length)];
  });
  // The places, moved only as far as needed to be `gap` apart.
  const spread = (places, gap, low, high) => {
    gap = Math.min(gap, (high - low) / Math.max(1, places.length - 1));
    const order = places.map((_, index) => index).sort((a, b) => places[a] - places[b]), moved = [...places];
    let free = low;
    for (const index of order) free = (moved[index] = Math.max(places[index], free)) + gap;
    free = high;
    for (const index of order.reverse()) free = (moved[index] = Math.min(moved[index], free)) - gap;
    return moved;
  };
  // Names [x, y, text], each at the free place that is nearest to its own: {text, x, y, wide}.
  const apart = (names, width, height) => names.reduce((placed, [x, y, words]) => {
    const wide = widthOf(words) / 2 + 5, high = LINE / 2 + 1;
    const moves = Array.from({length: 9 * 33}, (_, at) => [(at % 9 - 4) * wide, (Math.floor(at / 9) - 16) * high])
      .sort((a, b) => Math.hypot(...a) - Math.hypot(...b));
    const spots = moves.map(([dx, dy]) =>
      ({text: words, wide, x: Math.min(Math.max(x + dx, wide), width - wide), y: Math.min(Math.max(y + dy, high), height - high)}));
    const free = spots.find(spot => placed.every(one =>
      Math.abs(spot.x - one.x) >= spot.wide + one.wide || Math.abs(spot.y - one.y) >= 2 * high));
    return [...placed, free ?? spots[0]];
  }, []);

  // Colours for the values of a column: {colourOf: value -> colour, legend: [[colour, name]]}. Up to ten names, the most frequent
  // ones; of more numbers five steps, of as many different values each.
  const colouring = (values, numbers) => {
    const often = new Map(), known = values.filter(value => value !== null && value !== undefined);
    for (const value of known) often.set(value, 1 + (often.get(value) ?? 0));
    const distinct = [...often.keys()].sort(numbers ? (a, b) => a - b : (a, b) => String(a).localeCompare(String(b), "en", {numeric: true}));
    const stepped = numbers && distinct.length > COLOURS, end = at => Math.floor(at * distinct.length / STEPS);
    const shown = [...distinct].sort((a, b) => often.get(b) - often.get(a)).slice(0, COLOURS);
    const groups = stepped ? Array.from({length: STEPS}, (_, at) => distinct.slice(end(at), end(at + 1)))
      : distinct.filter(value => shown.includes(value)).map(value => [value]);
    const colours = new Map(groups.flatMap((group, at) => group.map(value => [value, stepped ? `step-${at + 1}` : at + 1])));
    const named = group => [colours.get(group[0]), [...new Set([group[0], group.at(-1)])].join(" to ")];
    return {colourOf: value => colours.get(value) ?? "rest",
      legend: [...groups.map(named), ...values.every(value => colours.has(value)) ? [] : [["rest", "others"]]]};
  };

  let count = 0;   // of the charts of the page, for names of their parts

  class Chart {
    // on: {brush, pick}; later: whether `draw` is called by the caller.
    constructor(box, data, on = {}, later = false) {
      Object.assign(this, {box, on, pinned: new Set(), name: `chart-${count++}`});
      this.stage = element("div", {className: "stage", tabIndex: 0, role: "group", ariaRoleDescription: "chart"});
      this.tip = element("output", {className: "tip", hidden: true});
      this.bar = element("div", {className: "controls"});
      box.classList.toggle("square", Boolean(data.square));
      box.append(this.stage, this.tip, this.bar);
      this.stage.ariaLabel = `${box.dataset.label ?? data.title}. Arrow keys: values. Plus, minus, 0: zoom.`;
      this.stage.addEventListener("keydown", event => this.key(event));
      this.stage.addEventListener("blur", () => this.show(null));
      this.listen();
      this.update(data, later);
      new ResizeObserver(() => { if (this.stage.clientWidth !== this.width) this.draw(); }).observe(this.stage);
    }

    // Draws another description in its place.
    update(data, later = false) {
      Object.assign(this, {data, by: 0, smooth: 0, near: {}});
      for (const key of ["x", "y"]) {
        const axis = data[key];
        if (axis.names && !axis.names.length) axis.names = [...new Set(data.series.flatMap(one => one[key]))];
      }
      this.count();
      this.kinds = {x: kindsOf(data.x, this.values("x")), y: kindsOf(data.y, this.values("y"))};
      this.kind = {x: this.kinds.x[0], y: this.kinds.y[0]};
      this.controls();
      if (!later) this.draw();
    }

    // The points, with numbers for names, on the chosen horizontal axis; those that are not finite cannot be drawn.
    count() {
      const {data, by} = this, rows = Boolean(data.y.rows);
      const number = (axis, value) => axis.names ? axis.names.indexOf(value) + .5 : axis.rows ? value + .5 : value;
      const along = (series, at) => Array.isArray(series.by?.[by]) ? series.by[by][at]
        : series.x[at] === null ? null : (series.by?.[by] ?? 1) * series.x[at];
      this.series = data.series.map((series, order) => ({...series, order, points: series.x.map((value, at) => ({
        x: number(data.x, data.x.names ? value : along(series, at)), y: number(data.y, series.y[at]), index: at,
        [rows ? "xs" : "ys"]: series.low && series.low[at] !== null ? [series.low[at], series.high[at]] : [],
        colour: series.colour ?? 1, id: series.id?.[at] ?? "", look: series.look?.[at] ?? "", floor: series.floor?.[at],
      })).filter(point => Number.isFinite(point.x) && Number.isFinite(point.y))}));
      for (const series of this.series) series.points.forEach(point => { point.series = series; });
      this.points = this.series.filter(one => one.colour !== "level").flatMap(one => one.points);
    }

    values(key) {
      const all = this.series.flatMap(one => one.points), setting = all.filter(point => !point.floor);
      return (setting.length ? setting : all).flatMap(point => [point[key], ...point[`${key}s`] ?? []]);
    }

    get lines() {
      return this.data.series.some(one => one.mark === "line" && one.colour !== "level");
    }

    // The controls below the chart.

    controls() {
      const {data} = this, key = this.kinds.y[1] ? "y" : "x", kinds = this.kinds[key], made = [];
      const menu = (label, names, act) => {
        const select = element("select", {ariaLabel: label}, ...names.map(name => new Option(name)));
        select.addEventListener("change", () => { act(select.selectedIndex); this.reset(); });
        made.push(select);
      };
      if (data.by?.length > 1) menu("The horizontal axis", data.by.map(name => `by ${name}`), at => { this.by = at; this.count(); });
      if (kinds[1]) menu("The scale", kinds.map(kind => SCALES[kind]), at => { this.kind[key] = kinds[at]; });
      if (this.lines && this.points.length > SMOOTHED) {   // the mean over more points around each; the curve itself stays, faint
        const slider = element("input", {type: "range", min: 0, max: WIDEST, value: 0, title: "Mean over the points around each"});
        slider.addEventListener("input", () => { this.smooth = Number(slider.value); this.draw(); });
        made.push(element("label", {className: "smooth"}, "smooth", slider));
      }
      if (!data.y.rows) {
        made.push(dom.button("+", () => this.zoom(1 / ZOOM), {ariaLabel: "Zoom in"}), dom.button("−", () => this.zoom(ZOOM), {ariaLabel: "Zoom out"}),
          dom.button("reset", () => this.reset(), {title: "The whole chart again"}));
      }
      this.bar.replaceChildren(...made, saving.menu({title: data.title, svg: () => this.svg, csv: () => this.csv}));
    }

    // Drawing.

    draw(width = this.stage.clientWidth) {
      this.width = width;
      if (!width) return;
      this.show(null);
      const {data} = this, narrow = width < WIDTH, texts = svg("g", {class: "texts"}), marks = svg("g", {"clip-path": `url(#${this.name})`});
      this.direct = this.labelled(width);
      const [legend, top] = this.legend(width, data.square ? .5 : data.y.label ? 26 : 6);
      const rows = data.y.rows && this.rows(width, top, texts);
      const bottom = rows ? rows.bottom : top + (data.square ? width : narrow ? LOW : HEIGHT) - (data.square ? 0 : 40);
      this.placing("y", bottom, top, .05, rows);
      const ticks = data.y.rows || data.square ? [] : ticksOf(data.y, this.y, 5);
      const left = rows ? rows.left : data.square ? 0 : 12 + Math.min(.4 * width, Math.max(0, ...ticks.map(([, words]) => widthOf(words))));
      const ends = Math.max(0, ...this.direct.map(one => widthOf(one.label ?? one.name) + 16));
      const right = rows ? rows.right : data.square ? width : width - Math.max(ends, 18);
      this.placing("x", left, right, this.lines ? 0 : .05);
      Object.assign(this, {left, right, top, bottom});
      for (const [value, words] of ticks) {
        texts.append(svg("path", {class: "grid", d: `M${round(left)} ${this.y.at(value)}H${round(right)}`}),
          svg("text", {x: round(left - 8), y: this.y.at(value) + 4, "text-anchor": "end", class: "number"}, ...cut(words, .4 * width)));
      }
      if (data.square) texts.append(svg("rect", {class: "frame", x: .5, y: top, width: width - 1, height: bottom - top, rx: 3}));
      else this.acrossTicks(texts, narrow, rows);
      const whole = this.height = bottom + (data.square ? 0 : data.x.label || data.by ? 40 : 24);
      for (const series of [...this.series].sort((a, b) => (b.colour === "rest") - (a.colour === "rest"))) this.mark(series, marks);
      this.labels(texts);
      this.svg_ = svg("svg", {viewBox: `0 0 ${width} ${round(whole)}`, class: "drawing", width, height: round(whole)},
        svg("clipPath", {id: this.name}, svg("rect", {x: left - 9, y: top - 9, width: right - left + 18, height: bottom - top + 18})),
        legend, texts, marks, this.named());
      if (this.pictures_.length) {
        const {columns, rows: many, width: w, height: h} = data.sheet;
        const sheet = svg("image", {id: `${this.name}-sheet`, href: this.sheet, width: columns * w, height: many * h});
        this.svg_.prepend(svg("defs", {}, sheet, ...this.pictures_));
      }
      this.band = this.svg_.appendChild(svg("rect", {class: "band", width: 0, height: 0}));
      this.stage.replaceChildren(this.svg_);
      this.light();
    }

    // The scale of an axis between two pixels: the whole, or what is zoomed into.
    placing(key, from, to, room, rows) {
      const kind = this.kind[key], axis = this.data[key];
      const ends = axis.names ?? axis.rows ? {low: 0, high: (axis.names ?? axis.rows).length, least: 1} : wholeOf(axis, kind, this.values(key), room);
      this.whole = {...this.whole, [key]: ends};
      this[key] = placing(kind, {...ends, ...this.near[key]}, from, to);
      if (rows) this[key].at = value => rows.middles[Math.min(Math.floor(value), rows.middles.length - 1)];
    }

    acrossTicks(texts, narrow, rows) {
      const {data, left, right, bottom} = this;
      const free = Math.max(2, Math.floor((right - left) / (widthOf("00-00 00:00") + 12)));   // moments are as long as that
      const many = Math.min(narrow ? 4 : 7, this.kind.x === "time" ? free : 7);
      const ticks = ticksOf(data.x, this.x, many,
        this.lines && this.kind.x === "linear" && (this.x.high > 4 || this.points.every(point => Number.isInteger(point.x))));
      const room = (right - left) / Math.max(1, ticks.length) - 8;
      for (const [value, words] of ticks) {
        const at = this.x.at(value);
        const grid = !rows ? `M${at} ${bottom}v5` : rows.beside ? `M${at} ${this.top}V${round(bottom + 5)}`
          : rows.middles.map(y => `M${at} ${y - 8}v16`).join("");
        texts.append(svg("path", {class: "grid", d: grid}),
          svg("text", {x: at, y: round(bottom + 20), "text-anchor": "middle", class: "number"}, ...data.x.names ? cut(words, room) : [words]));
      }
      texts.append(text(data.by?.[this.by] ?? data.x.label ?? "", right, bottom + 37, "axis", "end"));
      if (data.y.label) texts.append(text(data.y.label, data.y.rows ? 0 : left, this.top - 12, "axis"));
    }

    // The rows of a chart of intervals, with their texts beside the track, on a phone above it.
    rows(width, top, texts) {
      const {rows} = this.data.y, part = .4 * width, beside = width >= WIDTH && Math.max(...rows.map(row => widthOf(row.name))) <= part;
      const [bold, small] = ["text", "small"].map(key => Math.max(0, ...rows.map(row => widthOf(row[key] ?? "") * 1.05)));
      const values = beside ? bold + small + 26 : Math.max(bold, small) + 12, side = beside ? part : width - values;
      const after = row => widthOf(row.name) + 10, one = row => !row.note || after(row) + widthOf(row.note) <= side;   // in one line
      const notes = rows.map(row => one(row) ? [] : wrapped(row.note, side));
      const wide = rows.map((row, at) => Math.max(after(row) + (one(row) ? widthOf(row.note ?? "") : 0), ...notes[at].map(widthOf)));
      const left = beside ? Math.min(part, Math.max(...wide)) + 20 : 10;
      let y = top;
      const middles = rows.map((row, at) => {
        const lines = Math.max(1 + notes[at].length, beside ? 1 : 2), first = y + LINE;
        texts.append(svg("text", {x: 0, y: first, class: "name"}, ...cut(row.name, side)),
          ...one(row) && row.note ? [text(row.note, after(row), first, "note")] : [],
          ...notes[at].map((line, number) => text(line, 0, first + (number + 1) * LINE, "note")),
          text(row.text ?? "", beside ? width - small - 10 : width, first, "value", "end"),
          text(row.small ?? "", width, beside ? first : first + LINE, "note", "end"));
        const middle = beside ? y + (lines * LINE + 8) / 2 : y + lines * LINE + 13;
        y += lines * LINE + (beside ? 8 : 26);
        return round(middle);
      });
      return {left, right: width - (beside ? values : 10), bottom: y, middles, beside};
    }

    // The lines that have their names at their ends.
    labelled(width) {
      const lines = this.series.filter(one => one.points.length && (one.mark === "line" && one.colour !== "rest") && (one.name || one.label)
        && (this.lines || one.label));
      const long = Math.max(0, ...lines.map(one => widthOf(one.label ?? one.name)));
      return lines.length > 1 && lines.length <= LABELS && long < SHARE * width ? lines : [];
    }

    // The names of the series with their marks, which are switches: [group, the height below it].
    legend(width, margin) {
      const group = svg("g", {class: "legend"}), {sheet} = this.data, thumb = sheet ? THUMB : 0;
      const listed = this.series.filter(one => one.name && one.points.length && !this.direct.includes(one) && one.listed !== false
        && (one.colour !== "level" || one.mark === "line" && this.lines));
      this.pictures_ = [];
      if (listed.length < 2) return [group, margin];
      const high = Math.max(26, thumb + 6);
      let [x, y] = [0, 0];
      for (const one of listed) {
        const drawn = one.mark === "line", start = drawn ? 30 : 18, seen = sheet && one.thumb !== undefined && one.thumb !== null;
        const wide = Math.min(width, start + (seen ? thumb + 6 : 0) + widthOf(one.name) + 18);
        if (x && x + wide > width) [x, y] = [0, y + high];
        const entry = svg("g", {class: `entry stroke-${one.colour}`, transform: `translate(${round(x)} ${y})`, tabindex: 0, role: "button",
          "data-key": one.key ?? one.name}, svg("rect", {class: "hit", width: round(wide - 6), height: high, rx: 3}));
        if (drawn) entry.append(svg("path", {class: `curve stroke-${one.colour}`, d: `M0 ${high / 2}H24`}));
        if (!drawn) entry.append(svg("path", {class: "mark", d: outline(one.colour, one.look?.[0]), transform: `translate(7 ${high / 2})scale(5)`}));
        if (seen) entry.append(this.thumb(one.thumb, start, 3));
        entry.append(svg("text", {x: start + (seen ? thumb + 6 : 0), y: high / 2 + 5, class: "name"}, ...cut(one.name, width - start - 40)));
        group.append(entry);
        x += wide;
      }
      return [group, y + high + 6 + margin];
    }

    // A picture of the sheet, in a square.
    thumb(number, x, y) {
      const {columns, width, height} = this.data.sheet, name = `${this.name}-${number}`;
      const seen = `${number % columns * width} ${Math.floor(number / columns) * height} ${width} ${height}`;
      this.pictures_.push(svg("pattern", {id: name, width: 1, height: 1, viewBox: seen}, svg("use", {href: `#${this.name}-sheet`})));
      return svg("rect", {x, y, width: THUMB, height: THUMB, fill: `url(#${name})`});
    }

    mark(series, marks) {
      const {data} = this, colour = series.colour ?? 1, places = series.points.map(point => this.place(point));
      const group = marks.appendChild(svg("g", {class: `series stroke-${colour}`, "data-key": series.key ?? series.name}));
      const curve = (spots, faint) => group.append(svg("path", {class: `curve stroke-${colour}${faint ? " faint" : ""}`, d: `M${spots.map(spot => spot.join(" ")).join("L")}`}));
      if (series.mark === "line" && places.length) {
        const smooth = this.smooth && colour !== "level";
        curve(places, smooth);
        if (smooth) curve(averaged(places, this.smooth));
        if (places.length > 40 || colour === "rest" || colour === "level") return;
      }
      const size = (data.y.rows ? 5 : Math.min(4.2, Math.max(data.square ? 2.8 : 2, 90 / Math.sqrt(this.points.length)))) * (series.mark === "line" ? .8 : 1);
      series.points.forEach((point, at) => {
        const [x, y] = places[at], {look} = point, to = key => point[key]?.length ? point[key].map(value => this[key[0]].at(value)) : null;
        const below = data.y.rows && x < this.left;
        const [across, up] = [to("xs"), to("ys")];
        if (across && !below) group.append(svg("path", {class: look === "span" ? "interval span" : "interval", d: `M${Math.max(across[0], this.left)} ${y}H${across[1]}`}));
        if (up) group.append(svg("path", {class: "interval", "data-run": point.id, d: `M${x} ${up[0]}V${up[1]}`}));
        if (look === "span") return;
        const wide = size * (series.size?.[point.index] ?? 1);
        group.append(svg("path", {class: look === "ring" ? "ring" : "mark", "data-run": point.id, d: outline(colour, below ? "below" : look),
          transform: `translate(${below ? round(this.left) : x} ${y})scale(${round(wide)})`}));
      });
    }

    // The names of lines at their ends.
    labels(texts) {
      const {right, top, bottom} = this;
      const ends = this.direct.map(one => one.points.map(point => this.place(point)).filter(([x]) => x <= right + 1).at(-1)
        ?? [right, bottom]);
      spread(ends.map(([, y]) => y), LINE, top + 4, bottom).forEach((y, at) => {
        const {colour, label, name} = this.direct[at], [x, own] = ends[at];
        texts.append(svg("path", {class: `leader stroke-${colour}`, d: `M${Math.max(x, right - 12)} ${own}L${right + 7} ${round(y)}`}),
          text(label ?? name, right + 10, y + 4, colour === "level" ? "note" : "name"));
      });
    }

    // Names in the plot, on plates.
    named() {
      const group = svg("g", {class: "plates"}), {left, top, right, bottom} = this;
      const names = (this.data.names ?? []).map(one => [this.x.at(one.x) - left, this.y.at(one.y) - top, one.name])
        .filter(([x, y]) => x >= 0 && y >= 0 && x <= right - left && y <= bottom - top);
      for (const one of apart(names, right - left, bottom - top)) {
        group.append(svg("rect", {class: "plate", x: round(left + one.x - one.wide), y: round(top + one.y - LINE / 2), width: round(2 * one.wide), height: LINE, rx: 3}),
          text(one.text, left + one.x, top + one.y + 4.5, "name", "middle"));
      }
      return group;
    }

    // Values: under the mouse, the finger, and by the arrow keys.

    listen() {
      const {stage} = this, on = (kinds, act) => kinds.split(" ").forEach(kind => stage.addEventListener(kind, act));
      const entryOf = event => event.target.closest(".entry"), at = event => {
        const box = this.svg_.getBoundingClientRect();
        return [event.clientX - box.left, event.clientY - box.top];
      };
      let start = null;
      const dragged = here => start && Math.hypot(here[0] - start[0], here[1] - start[1]) >= 5;
      on("pointerdown", event => {
        if (entryOf(event) || !this.svg_) return;
        start = at(event);
        this.show(this.nearest(...start));
      });
      on("pointermove", event => {
        const here = at(event);
        if (!dragged(here)) return void (entryOf(event) || this.show(this.nearest(...here)));
        if (event.isTrusted) stage.setPointerCapture(event.pointerId);
        this.show(null);
        this.frame(start, here);
      });
      on("pointerup", event => {
        const here = at(event), found = this.nearest(...here);
        if (dragged(here)) this.drawn(start, here);
        else if (start && found && this.on.pick) this.on.pick(found.id);
        else if (start && this.on.brush) this.brush(null);
        start = null;
      });
      on("pointercancel", () => { start = null; this.frame(); });
      on("pointerleave", event => { if (event.pointerType === "mouse" && !start) this.show(null); });
      on("click", event => entryOf(event) && this.pin(entryOf(event).dataset.key));
      on("pointerover focusin", event => this.point(entryOf(event)?.dataset.key));
      on("pointerleave focusout", () => this.point());
    }

    // The rectangle that is dragged.
    frame(from = [0, 0], to = from) {
      ["x", "y"].forEach((key, side) => this.band.setAttribute(key, round(Math.min(from[side], to[side]))));
      ["width", "height"].forEach((key, side) => this.band.setAttribute(key, round(Math.abs(from[side] - to[side]))));
    }

    drawn(from, to) {
      const sides = [0, 1].map(side => [from[side], to[side]].sort((a, b) => a - b));
      if (this.on.brush) {
        const inside = point => this.place(point).every((at, side) => at >= sides[side][0] && at <= sides[side][1]);
        return this.brush(this.points.filter(inside).map(point => point.id));
      }
      (this.data.y.rows ? ["x"] : ["x", "y"]).forEach((key, side) => {
        const {from: first, to: last} = this[key], [low, high] = [Math.min(first, last), Math.max(first, last)];
        if (sides[side][1] - sides[side][0] < 12) return;
        const ends = sides[side].map(pixel => this[key].value(Math.min(Math.max(pixel, low), high))).sort((a, b) => a - b);
        this.near[key] = {low: ends[0], high: ends[1]};
      });
      this.draw();
    }

    place(point) {
      return [this.x.at(point.x), this.y.at(point.y)];
    }

    brush(ids) {
      if (!ids) this.frame();
      this.select(ids);
      this.on.brush(ids);
    }

    inside(point) {
      const [x, y] = this.place(point);
      return this.data.y.rows || x >= this.left - 1 && x <= this.right + 1 && y >= this.top - 1 && y <= this.bottom + 1;
    }

    nearest(left, top) {
      let best = null, least = this.lines ? Infinity : FINGER;
      if (this.lines && (top < this.top - LINE || top > this.bottom + 40)) return null;
      for (const point of this.points) {
        const [x, y] = this.place(point), away = Math.hypot(x - left, y - top) + (point.colour === "rest" && !this.data.y.rows ? FAR : 0);
        if (away < least && this.inside(point)) [best, least] = [point, away];
      }
      return best;
    }

    show(point) {
      this.at = point;
      this.tip.hidden = !point;
      this.svg_?.querySelectorAll(".shown").forEach(one => one.remove());
      if (!point) return;
      const {data, svg_} = this, {series, index} = point;
      const ends = (point.xs ?? point.ys).map(value => written(data.y.rows ? data.x : data.y, value)).join(" to ");
      const row = data.y.rows?.[Math.floor(point.y)];
      const shown = row ? `${row.name}: ${written(data.x, point.x)}` : `${series.name}, ${data.by?.[this.by] ?? data.x.label} ${written(data.x, point.x)}: ${written(data.y, point.y)}`;
      this.tip.textContent = series.text?.[index] ?? shown + (ends && ` (${ends})`);
      const near = this.nearTo(point);
      if (series.picture && data.sheet) this.tip.prepend(this.picture(point, PICTURE));
      if (near.length) this.tip.append(this.pictures(near));
      const [x, y] = this.place(point);
      for (const one of [...near.filter(other => this.inside(other)), point]) {
        svg_.append(svg("circle", {class: `shown${one === point ? "" : " near"}`, cx: Math.max(this.x.at(one.x), this.left), cy: this.y.at(one.y), r: 7}));
      }
      const half = this.tip.offsetWidth / 2, tall = this.tip.offsetHeight;
      this.tip.style.left = `${Math.min(Math.max(x, half), this.width - half)}px`;
      this.tip.style.top = `${y > tall + 14 ? y - tall - 12 : y + 14}px`;
    }

    // The points whose pictures are most like that of a point, nearest first.
    nearTo(point) {
      if (!this.data.nearest) return [];
      const of = one => one.series.picture[one.index];
      return this.data.nearest[of(point)].map(number => this.points.find(one => of(one) === number)).filter(Boolean);
    }

    pictures(points) {
      return element("span", {className: "near"}, element("b", {}, "nearest by their features"),
        ...points.map(one => element("span", {}, this.picture(one, NEIGHBOUR), one.series.name)));
    }

    // The picture of a point, its larger side `size` pixels long.
    picture({series, index}, size) {
      const {columns, width, height} = this.data.sheet, number = series.picture[index], scale = size / Math.max(width, height);
      const [wide, high] = [width * scale, height * scale].map(Math.round);
      const sheet = element("img", {src: this.sheet, alt: ""}), box = element("span", {className: "picture"}, sheet);
      sheet.style.cssText = `width:${columns * wide}px;left:${-wide * (number % columns)}px;top:${-high * Math.floor(number / columns)}px`;
      box.style.cssText = `width:${wide}px;height:${high}px`;
      return box;
    }

    // The address of the chart's sheet, or of that of the whole page.
    get sheet() {
      return this.data.sheet.image
        || getComputedStyle(document.documentElement).getPropertyValue("--sheet").trim().replace(/^url\(["']?|["']?\)$/g, "");
    }

    // Left and right go along a curve, up and down to the next one; of other points to the next on either axis.
    key(event) {
      const across = {ArrowDown: 1, ArrowUp: -1}[event.key] ?? 0, along = {ArrowRight: 1, ArrowLeft: -1, Home: -1e9, End: 1e9}[event.key] ?? 0;
      const entry = event.target.closest(".entry"), pin = () => entry && this.pin(entry.dataset.key), nearer = () => this.zoom(1 / ZOOM);
      const act = {"+": nearer, "=": nearer, "-": () => this.zoom(ZOOM), "0": () => this.reset(), " ": pin,
        Escape: () => { this.show(null); if (this.on.brush) this.brush(null); },
        Enter: () => entry ? pin() : this.at && this.on.pick?.(this.at.id)}[event.key];
      if (!act && !across && !along || event.ctrlKey || event.metaKey) return;
      event.preventDefault();
      if (act) return act();
      const before = this.at;
      this.show(this.next(along, across));
      if (!event.shiftKey || !this.on.brush || !this.at) return void (this.anchor = this.at);
      this.anchor ??= before ?? this.at;
      const shown = this.at, both = [this.anchor, shown].map(point => this.place(point));
      const [low, high] = [[Math.min, -6], [Math.max, 6]].map(([end, by]) => [0, 1].map(side => end(both[0][side], both[1][side]) + by));
      this.frame(low, high);
      this.drawn(low, high);
      this.show(shown);
    }

    next(along, across) {
      const points = this.points.filter(one => this.inside(one)), now = this.at;
      if (!now || !points.length) return points[0] ?? null;
      const step = (order, way) => order[Math.min(Math.max(order.indexOf(now) + way, 0), order.length - 1)];
      if (this.data.y.rows) return step([...points].sort((a, b) => a.y - b.y), along || across);
      if (!this.lines) return step([...points].sort((a, b) => across ? b.y - a.y || a.x - b.x : a.x - b.x || a.y - b.y), along || across);
      if (along) return step(points.filter(one => one.series === now.series), along);
      const orders = [...new Set(points.map(one => one.series.order))], many = orders.length;
      const order = orders[(orders.indexOf(now.series.order) + across + many) % many];
      return points.filter(one => one.series.order === order).reduce((a, b) => Math.abs(a.x - now.x) <= Math.abs(b.x - now.x) ? a : b);
    }

    // About the point that is shown, else about the middle.
    zoom(factor) {
      const shown = this.at;
      for (const key of this.lines ? ["x"] : ["x", "y"]) {
        const {kind, low, high, least} = this[key], to = value => forward[kind](value, least), whole = this.whole[key];
        const middle = shown ? to(shown[key]) : (to(low) + to(high)) / 2;
        const [a, b] = [Math.max(to(whole.low), middle + (to(low) - middle) * factor), Math.min(to(whole.high), middle + (to(high) - middle) * factor)];
        this.near[key] = {low: backward[kind](a), high: backward[kind](b)};
      }
      this.draw();
      this.show(shown && this.inside(shown) ? shown : null);
    }

    reset() {
      this.near = {};
      this.draw();
    }

    // What stands out: the series or the run that is pointed at, those that are pinned, and the ids of a selection.

    point(key) {
      this.pointed = key;
      this.light();
    }

    pin(key) {
      if (!this.pinned.delete(key)) this.pinned.add(key);
      this.light();
    }

    select(ids) {
      this.selected = ids && new Set(ids.map(String));
      this.light();
    }

    light() {
      if (!this.svg_) return;
      const {pointed, pinned, selected} = this, keys = new Set([...pinned, ...pointed === undefined ? [] : [pointed]]);
      const groups = [...this.svg_.querySelectorAll(".series")], known = groups.some(one => keys.has(one.dataset.key));
      for (const one of groups) one.classList.toggle("faint", known && !keys.has(one.dataset.key) && !one.matches(".stroke-level"));
      for (const one of groups) one.classList.toggle("strong", known && keys.has(one.dataset.key));
      for (const one of this.svg_.querySelectorAll(".entry")) one.setAttribute("aria-pressed", pinned.has(one.dataset.key));
      for (const one of this.svg_.querySelectorAll("[data-run]:not([data-run=''])")) {
        one.classList.toggle("strong", one.dataset.run === pointed);
        one.classList.toggle("faint", Boolean(selected) && !selected.has(one.dataset.run) && one.dataset.run !== pointed);
      }
    }

    // Saving: the drawing in the colours of paper, with its title.

    get svg() {
      return saving.onPaper(this.box, style => saving.file(saving.styled(this.svg_).childNodes, this.width, this.height, this.data.title, style));
    }

    get csv() {
      const {series, x, y} = this.data, by = this.data.by ?? [x.label || "x"], ends = series.some(one => one.low);
      const along = (one, at, number) => Array.isArray(one.by?.[number]) ? one.by[number][at] : x.names ? one.x[at] : (one.by?.[number] ?? 1) * one.x[at];
      const shared = y.rows && series.reduce((sum, one) => sum + one.x.length, 0) > y.rows.length;   // rows with several marks
      const row = (one, at) => y.rows ? [y.rows[one.y[at]].name + (shared ? `, ${one.name}` : ""), one.x[at]] : [one.id?.[at] ?? one.name, ...by.map((_, number) => along(one, at, number)), one.y[at]];
      return saving.csv([[...y.rows ? ["", "value"] : ["series", ...by, y.label || "y"], ...ends ? ["low", "high"] : []],
        ...series.flatMap(one => one.x.map((_, at) => [...row(one, at), ...ends ? [one.low?.[at], one.high?.[at]] : []]))]);
    }
  }

  const all = [...document.querySelectorAll(".chart")].map(box => [box, box.querySelector("script")]).filter(([, script]) => script)
    .map(([box, script]) => new Chart(box, JSON.parse(script.textContent), {}, true));
  const widths = all.map(chart => chart.stage.clientWidth);   // one layout of the page for all of them
  all.forEach((chart, at) => chart.draw(widths[at]));
  // The mark or the curve of the run that is pointed at in a table stands out.
  for (const group of document.querySelectorAll("[data-runs]")) {
    const point = key => all.forEach(chart => chart.point(key));
    for (const start of ["pointerover", "focusin"]) group.addEventListener(start, event => point(event.target.closest("[data-run]")?.dataset.run));
    for (const end of ["pointerleave", "focusout"]) group.addEventListener(end, () => point());
  }
  return {Chart, colouring, all};
})();
