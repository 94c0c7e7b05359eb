// Draws each chart of a page again with uPlot, so that it can be asked for values, zoomed and saved. Without JavaScript, and on
// paper, the page shows the SVG beside its data.
(() => {
  const {backward, forward, ticksOf, tickText, written} = axes;
  const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const DASHES = {1: [], 2: [9, 4], 3: [2, 3], 4: [12, 4, 2, 4], 5: [5, 3], 6: [1, 4], rest: [], level: [4, 4]};
  const COLOURED = 6;
  const LINE = 15;       // height of a line of text
  const FAR = 14;        // a grey point counts as this many pixels further away than a coloured one
  const FINGER = 48;     // pixels: a point that is further away is not meant
  const ZOOM = 1.6;
  const PICTURE = 72;    // larger side of a picture that the tip shows, in pixels
  const SMOOTHED = 20;   // curves of more points can be smoothed
  const WIDEST = 20;     // over at most as many points on either side
  const FAINT = .35;     // opacity of a curve under its smoothed one
  const NEIGHBOUR = 36;  // that of a neighbour's
  const charts = [];
  const element = (name, className, text = "") => Object.assign(document.createElement(name), {className, textContent: text});

  // Series key -> colour (1 to COLOURED) or "rest"; asked: the keys in the order in which they were given a colour.
  const colours = new Map();
  const asked = [];
  let most = COLOURED;   // series in colour at once: as many as a chart begins with, if these are more
  const colourOf = series => series.series === "level" ? "level" : colours.get(series.key) ?? series.series;
  const stroke = colour => css(colour === "rest" || colour === "level" ? "--quiet" : `--series-${colour}`);

  const give = (key, colour) => {
    colours.set(key, colour);
    if (colour !== "rest") asked.push(key);
  };
  const take = key => {
    asked.splice(asked.indexOf(key), 1);
    colours.set(key, "rest");
  };
  // A series gets a colour; where none is free it gets that of the series that was asked for first.
  const toggle = key => {
    if (colours.get(key) !== "rest") return take(key);
    if (asked.length >= most) take(asked[0]);
    const used = asked.map(one => colours.get(one));
    give(key, Array.from({length: most}, (_, at) => at + 1).find(colour => !used.includes(colour)));
  };

  // Where the point lies on the chart's axis number `by`: counted by a factor of the first one, or listed.
  const along = (series, by, index) => {
    const of = series.by?.[by] ?? 1;
    return Array.isArray(of) ? of[index] : of * series.x[index];
  };

  // Places along a curve, each at the mean height of those up to `reach` before and after it, fewer at the ends.
  const averaged = (places, reach) => places.map(([x], at) => {
    const many = Math.min(reach, at, places.length - 1 - at);
    const around = places.slice(at - many, at + many + 1);
    return [x, around.reduce((sum, [, y]) => sum + y, 0) / around.length];
  });

  // As spread() in ladder/pages/charts.py: the places, moved only as far as needed to be `gap` apart.
  const spread = (places, gap, low, high) => {
    gap = Math.min(gap, (high - low) / Math.max(1, places.length - 1));
    const order = places.map((_, index) => index).sort((a, b) => places[a] - places[b]);
    const moved = [...places];
    let free = low;
    for (const index of order) free = (moved[index] = Math.max(places[index], free)) + gap;
    free = high;
    for (const index of order.reverse()) free = (moved[index] = Math.min(moved[index], free)) - gap;
    return moved;
  };

  // As apart(): names where they do not cover each other.
  const apart = (names, widthOf, width, height) => {
    const taken = [];
    return names.map(([x, y, text]) => {
      const [wide, high] = [widthOf(text) / 2 + 5, LINE / 2 + 1];
      const moves = [];
      for (let dx = -4; dx <= 4; dx++) for (let dy = -16; dy <= 16; dy++) moves.push([dx * wide, dy * high]);
      moves.sort((a, b) => Math.hypot(...a) - Math.hypot(...b));
      const places = moves.map(([dx, dy]) => [Math.min(Math.max(x + dx, wide), width - wide),
        Math.min(Math.max(y + dy, high), height - high)]);
      const free = places.find(([a, b]) => taken.every(([c, d, w, h]) => Math.abs(a - c) >= wide + w || Math.abs(b - d) >= high + h))
        ?? places[0];
      taken.push([...free, wide, high]);
      return {text, x: free[0], y: free[1], wide};
    });
  };

  class Chart {
    constructor(box) {
      this.box = box;
      this.still = box.querySelector("svg.still");
      this.data = JSON.parse(box.querySelector("script").textContent);
      this.by = 0;
      this.kind = {x: this.data.x.kind, y: this.data.y.kind};
      this.at = null;
      this.chosen = {};   // what the reader switched to: {by, y}
      this.live = box.appendChild(element("div", "asked"));
      this.stage = this.live.appendChild(element("div", "stage"));
      this.stage.tabIndex = 0;
      this.stage.setAttribute("role", "group");
      this.stage.setAttribute("aria-roledescription", "chart");
      this.stage.setAttribute("aria-label", `${box.dataset.label}. Arrow keys: values. Plus, minus, 0: zoom.`);
      this.tip = this.live.appendChild(element("output", "tip"));
      this.tip.hidden = true;
      this.controls();
      this.stage.addEventListener("keydown", event => this.key(event));
      this.stage.addEventListener("blur", () => this.show(null));
      this.stage.addEventListener("pointerleave", () => this.show(null));
      for (const kind of ["touchstart", "touchmove"]) {
        this.stage.addEventListener(kind, event => this.pointAt(event.touches[0]), {passive: true});
      }
      new ResizeObserver(() => this.resize()).observe(this.live);
      box.classList.add("drawn");
    }

    controls() {
      const bar = this.live.appendChild(element("div", "controls"));
      const button = (text, label, act) => {
        const one = bar.appendChild(element("button", "", text));
        one.type = "button";
        if (!/[a-z]/.test(text)) one.setAttribute("aria-label", label);   // a word is its own name, which speech can say
        one.title = label;
        one.addEventListener("click", () => act(one));
        return one;
      };
      if (this.data.by.length > 1) {
        this.select = bar.appendChild(element("select", ""));
        this.select.setAttribute("aria-label", "The horizontal axis");
        this.data.by.forEach((name, at) => this.select.append(new Option(`by ${name}`, at)));
        this.select.addEventListener("change", () => { this.choose({by: Number(this.select.value)}); this.draw(); });
      }
      const other = Object.keys(this.data.y.ranges).find(kind => kind !== "linear");
      if (other && this.data.y.ranges.linear) {
        const [text, label] = {log: ["log", "Logarithmic vertical axis"],
          error: ["expanded", "Vertical axis that expands towards 100 %"]}[other];
        this.log = button(text, label, () => {
          this.choose({y: this.kind.y === "linear" ? other : "linear"});
          this.draw();
        });
        this.choose({});
      }
      if (this.data.drawn === "lines" && this.data.series.some(one => one.series !== "level" && one.x.length > SMOOTHED)) this.slider(bar);
      button("+", "Zoom in", () => this.zoom(1 / ZOOM));
      button("−", "Zoom out", () => this.zoom(ZOOM));
      button("reset", "The whole chart again", () => this.draw());
      bar.append(saving.menu({title: this.data.title, svg: () => this.svg, csv: () => this.csv}));
    }

    // How many points on either side are averaged; the curve itself stays, faint.
    slider(bar) {
      const label = bar.appendChild(element("label", "smooth", "smooth"));
      this.smooth = label.appendChild(Object.assign(element("input", ""), {type: "range", min: 0, max: WIDEST, value: 0}));
      this.smooth.title = "Mean over the points around each";
      this.smooth.addEventListener("input", () => {
        this.choose({smooth: Number(this.smooth.value)});
        this.plot?.redraw(false);
      });
    }

    choose(what) {
      Object.assign(this.chosen, what);
      this.by = this.chosen.by ?? this.by;
      if (this.chosen.y in this.data.y.ranges) this.kind.y = this.chosen.y;
      if (this.select) this.select.value = this.by;
      if (this.smooth) this.smooth.value = this.chosen.smooth ?? 0;
      this.log?.setAttribute("aria-pressed", this.kind.y !== "linear");
    }

    // The points of the chart: {x, y, series, index}, x on the chosen axis.
    get points() {
      return this.data.series.flatMap((series, number) => series.series === "level" ? [] : series.x.map((_, index) =>
        ({x: along(series, this.by, index), y: series.y[index], series, number, index})));
    }

    draw() {
      const {data} = this;
      const width = this.live.clientWidth;
      if (!width) return;   // on paper, where the SVG is shown: the drawing stays as it is
      this.plot?.destroy();
      this.show(null);
      const narrow = width < 480;
      const font = `12px ${css("--sans")}`;
      const pen = document.createElement("canvas").getContext("2d");
      pen.font = font;
      this.widthOf = text => pen.measureText(text).width;   // in CSS pixels
      const lines = data.drawn === "lines";
      const labels = lines ? data.series.filter(one => one.series !== "rest" || colours.get(one.key) !== "rest") : [];
      // On a narrow screen the last word of a label is on a line of its own.
      this.linesOf = series => narrow ? series.label.split(/ (?=\S+$)/) : [series.label];
      const ends = labels.length ? Math.max(...labels.flatMap(this.linesOf).map(this.widthOf)) + 14 : 18;
      const last = Math.max(...this.points.map(point => point.x));
      const xs = lines && this.kind.x === "linear" ? {linear: [0, last]} : data.x.ranges;
      this.whole = {x: xs[this.kind.x], y: data.y.ranges[this.kind.y]};
      const axis = (key, of) => {
        const kind = this.kind[key];
        return {
          scale: key, font, stroke: css("--soft"), grid: {stroke: css("--line"), width: 1, show: key === "y"},
          ticks: {stroke: css("--line"), width: 1, size: key === "y" ? 0 : 5}, gap: 6, show: !data.square,
          splits: (_, __, low, high) => ticksOf(of, kind, low, high, key === "y" ? 5 : narrow ? 4 : 7),
          filter: (_, splits) => splits,
          values: (_, splits) => splits.map(value => tickText(of, value)),
          size: key === "y" ? (_, texts) => 14 + Math.max(0, ...(texts ?? []).map(text => this.widthOf(text))) : 30,
        };
      };
      const scale = (key, of) => ({
        time: false, range: (_, low, high) => key === "x" ? [low, high] : this.whole.y, distr: 100,
        fwd: value => forward[this.kind[key]](value, of.least), bwd: value => backward[this.kind[key]](value),
      });
      this.plot = new uPlot({
        width, height: data.square ? width : narrow ? 230 : 300, padding: data.square ? [0, 0, 0, 0] : [8, ends, 0, 0],
        legend: {show: false}, scales: {x: scale("x", data.x), y: scale("y", data.y)},
        axes: [axis("x", data.x), axis("y", data.y)],
        cursor: {points: {show: false}, y: false, x: lines, drag: {x: true, y: true, uni: 24}},
        series: [{}, {scale: "y", paths: () => null, points: {show: false}}],
        hooks: {draw: [() => this.paint(labels)], setCursor: [plot => this.hover(plot)]},
      }, [this.whole.x, [null, null]], this.stage);   // the marks are painted below, so uPlot gets the ends of the axis only
      this.yName = this.yName ?? this.live.insertBefore(element("p", "axis-name"), this.stage);
      this.yName.textContent = data.square ? "" : data.y.label;
      this.xName = this.xName ?? this.live.insertBefore(element("p", "axis-name below"), this.tip);
      this.xName.textContent = data.square ? "" : data.by[this.by];
    }

    resize() {
      if (this.live.clientWidth !== this.plot?.width) this.draw();
    }

    // Pixels of the canvas's own size, of a point.
    place(point) {
      return [this.plot.valToPos(point.x, "x"), this.plot.valToPos(point.y, "y")];
    }

    paint(labels) {
      const {plot, data} = this;
      const {ctx: pen, bbox} = plot;
      const ratio = devicePixelRatio;
      const at = (x, y) => [bbox.left + plot.valToPos(x, "x") * ratio, bbox.top + plot.valToPos(y, "y") * ratio];
      const order = [...data.series].sort((a, b) => (colourOf(a) !== "rest") - (colourOf(b) !== "rest"));
      pen.save();
      pen.beginPath();
      pen.rect(bbox.left - 4 * ratio, bbox.top - 4 * ratio, bbox.width + 8 * ratio, bbox.height + 8 * ratio);
      pen.clip();
      for (const series of order) {
        const colour = colourOf(series);
        const pointed = this.pointed !== undefined && series.key === this.pointed;
        const places = series.x.map((_, index) => at(along(series, this.by, index), series.y[index]));
        pen.globalAlpha = this.pointed !== undefined && !pointed && !series.run && colour !== "level" ? .2 : colour === "rest" ? .6 : 1;
        pen.strokeStyle = pen.fillStyle = stroke(colour);
        if (data.drawn === "lines" || colour === "level") {
          const wide = (pointed ? 4 : colour === "rest" ? 1.25 : colour === "level" ? 1.5 : 2.25) * ratio;
          pen.lineJoin = "round";
          if (this.chosen.smooth && colour !== "level") {
            this.line(pen, places, [], ratio, FAINT);
            this.line(pen, averaged(places, this.chosen.smooth), DASHES[colour], wide, 1);
          } else {
            this.line(pen, places, DASHES[colour], wide, 1);
          }
        }
        if (colour === "level" || (data.drawn === "lines" && (places.length > 40 || colour === "rest"))) continue;
        places.forEach(([x, y], index) => this.mark(pen, x, y, colour, series, index, ratio));
      }
      pen.restore();
      pen.save();
      pen.font = `${12 * ratio}px ${css("--sans")}`;
      pen.textBaseline = "middle";
      pen.textAlign = "left";
      const shown = labels.filter(one => colourOf(one) !== "rest");
      const ends = shown.map(series => series.x.map((_, index) => at(along(series, this.by, index), series.y[index]))
        .filter(([x]) => x <= bbox.left + bbox.width + 1).at(-1) ?? [bbox.left, bbox.top]);
      const right = bbox.left + bbox.width;
      const high = Math.max(...shown.map(one => this.linesOf(one).length)) * LINE * ratio;
      spread(ends.map(([, y]) => y), high, bbox.top, bbox.top + bbox.height).forEach((y, index) => {
        const [x, own] = ends[index];
        pen.fillStyle = css(shown[index].series === "level" ? "--soft" : "--ink");
        this.linesOf(shown[index]).forEach((text, line) => pen.fillText(text, right + 10 * ratio, y + line * LINE * ratio));
        pen.strokeStyle = stroke(colourOf(shown[index]));
        pen.lineWidth = ratio;
        pen.beginPath();   // from the end of the curve to its name
        pen.moveTo(Math.max(x, right - 12 * ratio), own);
        pen.lineTo(right + 7 * ratio, y);
        pen.stroke();
      });
      const names = (data.names ?? []).map(one => [...at(one.x, one.y), one.name])
        .map(([x, y, text]) => [(x - bbox.left) / ratio, (y - bbox.top) / ratio, text])
        .filter(([x, y]) => x >= 0 && y >= 0 && x <= bbox.width / ratio && y <= bbox.height / ratio);
      pen.textAlign = "center";
      for (const name of apart(names, this.widthOf, bbox.width / ratio, bbox.height / ratio)) {
        const [x, y] = [bbox.left + name.x * ratio, bbox.top + name.y * ratio];
        pen.fillStyle = css("--paper");
        pen.globalAlpha = .85;
        pen.fillRect(x - name.wide * ratio, y - LINE / 2 * ratio, 2 * name.wide * ratio, LINE * ratio);
        pen.globalAlpha = 1;
        pen.fillStyle = css("--ink");
        pen.fillText(name.text, x, y);
      }
      pen.restore();
    }

    line(pen, places, dashes, wide, alpha) {
      const opaque = pen.globalAlpha;
      pen.globalAlpha *= alpha;
      pen.lineWidth = wide;
      pen.setLineDash(dashes.map(length => length * devicePixelRatio));
      pen.beginPath();
      places.forEach(([x, y]) => pen.lineTo(x, y));
      pen.stroke();
      pen.setLineDash([]);
      pen.globalAlpha = opaque;
    }

    mark(pen, x, y, colour, series, index, ratio) {
      const look = series.look?.[index] ?? "";
      const pointed = this.pointed !== undefined && series.run?.[index] === this.pointed;
      const size = (this.data.square ? 3 : 4) * (series.size?.[index] ?? 1) * (pointed ? 1.8 : 1) * ratio;
      if (series.run) pen.globalAlpha = this.pointed === undefined ? .85 : pointed ? 1 : .25;
      pen.lineWidth = 1.5 * ratio;
      pen.beginPath();
      if (look === "failed") {
        pen.strokeStyle = css("--wrong");
        pen.moveTo(x - size, y - size); pen.lineTo(x + size, y + size);
        pen.moveTo(x + size, y - size); pen.lineTo(x - size, y + size);
        return pen.stroke();
      }
      const shape = new Path2D();
      shape.addPath(new Path2D(this.data.marks[colour] ?? this.data.marks[1]), new DOMMatrix([size, 0, 0, size, x, y]));
      if (look === "ring") return pen.stroke(shape);
      pen.fill(shape);
      if (series.size) {   // large marks cover others
        pen.strokeStyle = css("--paper");
        pen.lineWidth = ratio;
        pen.stroke(shape);
      }
      if (look !== "best") return;
      pen.strokeStyle = css("--ink");
      pen.beginPath();
      pen.arc(x, y, 8 * ratio, 0, 7);
      pen.stroke();
    }

    // Values: under the mouse, the finger, and by the arrow keys.

    hover(plot) {
      if (plot.cursor.left >= 0 && !plot.select.width) this.show(this.nearest(plot.cursor.left, plot.cursor.top));
    }

    pointAt(touch) {
      const over = this.plot.over.getBoundingClientRect();
      this.show(this.nearest(touch.clientX - over.left, touch.clientY - over.top));
    }

    inside(point) {
      const [x, y] = this.place(point);
      return x >= -1 && y >= -1 && x <= this.plot.over.clientWidth + 1 && y <= this.plot.over.clientHeight + 1;
    }

    nearest(left, top) {
      let best = null;
      for (const point of this.points.filter(one => this.inside(one))) {
        const [x, y] = this.place(point);
        const away = Math.hypot(x - left, y - top) + (colourOf(point.series) === "rest" ? FAR : 0);
        if (!best || away < best.away) best = {...point, away};
      }
      return best && (best.away < FINGER || this.data.drawn === "lines") ? best : null;
    }

    show(point) {
      this.at = point;
      this.tip.hidden = !point;
      this.rings?.forEach(ring => ring.remove());
      if (!point) return;
      const {data, plot} = this;
      this.tip.textContent = point.series.text?.[point.index]
        ?? `${point.series.name}, ${data.by[this.by]} ${written({}, point.x)}: ${written(data.y, point.y)}`;
      const near = this.nearTo(point);
      if (point.series.picture) this.tip.prepend(this.picture(point, PICTURE));
      if (near.length) this.tip.append(this.pictures(near));
      this.rings = [point, ...near.filter(other => this.inside(other))].map(one => this.ringAt(one, one === point));
      const [x, y] = this.place(point);
      const over = plot.over.getBoundingClientRect();
      const live = this.live.getBoundingClientRect();
      const [middle, above] = [over.left - live.left + x, over.top - live.top + y];
      const half = this.tip.offsetWidth / 2;
      this.tip.style.left = `${Math.min(Math.max(middle, half), live.width - half)}px`;
      this.tip.style.top = `${above > this.tip.offsetHeight + 14 ? above - this.tip.offsetHeight - 12 : above + 14}px`;
    }

    // The points whose pictures are the nearest to that of a point, nearest first.
    nearTo(point) {
      if (!this.data.nearest) return [];
      this.byPicture ??= new Map(this.points.map(one => [one.series.picture[one.index], one]));
      return this.data.nearest[point.series.picture[point.index]].map(number => this.byPicture.get(number)).filter(Boolean);
    }

    pictures(points) {
      const box = element("span", "near");
      box.append(element("b", "", "nearest by their features"));
      for (const one of points) {
        const named = box.appendChild(element("span", ""));
        named.append(this.picture(one, NEIGHBOUR), one.series.name);
      }
      return box;
    }

    ringAt(point, chosen) {
      const [x, y] = this.place(point);
      const ring = this.plot.over.appendChild(element("i", chosen ? "ring" : "ring near"));
      ring.style.cssText = `left:${x}px;top:${y}px`;
      return ring;
    }

    // The picture of a point, of the chart's sheet.
    picture(point, side) {
      const number = point.series.picture[point.index];
      const {image, columns, width, height} = this.data.pictures;
      const scale = side / Math.max(width, height);
      const one = element("i", "picture");
      one.style.cssText = `width:${width * scale}px;height:${height * scale}px`;
      // The sheet of the whole page, where the chart has none of its own.
      const src = image || css("--sheet").replace(/^url\(["']?|["']?\)$/g, "");
      const sheet = one.appendChild(Object.assign(new Image(), {src, alt: ""}));
      sheet.style.cssText = `width:${columns * width * scale}px;left:${-(number % columns) * width * scale}px;top:${
        -Math.floor(number / columns) * height * scale}px`;
      return one;
    }

    key(event) {
      const moves = {ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1], Home: [-Infinity, 0], End: [Infinity, 0]};
      const acts = {"+": () => this.zoom(1 / ZOOM), "=": () => this.zoom(1 / ZOOM), "-": () => this.zoom(ZOOM), "0": () => this.draw(),
        Escape: () => this.show(null)};
      if (event.ctrlKey || event.metaKey || event.altKey || !(event.key in moves || event.key in acts)) return;
      event.preventDefault();
      if (event.key in acts) return acts[event.key]();
      this.move(...moves[event.key]);
    }

    // Along the series (of a scatter: along the axis), or to the nearest point of the next one.
    move(along, across) {
      const points = this.points.filter(one => this.inside(one));
      if (!points.length) return;
      if (!this.at) return this.show(points[0]);
      const order = this.data.drawn === "points" ? points.sort((a, b) => across ? b.y - a.y : a.x - b.x)
        : points.filter(one => one.number === this.at.number);
      if (this.data.drawn === "points" || along) {
        const now = order.findIndex(one => one.number === this.at.number && one.index === this.at.index);
        return this.show(order[Math.min(Math.max(now + (along || across), 0), order.length - 1)]);
      }
      const numbers = [...new Set(points.map(one => one.number))];
      const next = numbers[(numbers.indexOf(this.at.number) + across + numbers.length) % numbers.length];
      const others = points.filter(one => one.number === next);
      this.show(others.reduce((a, b) => Math.abs(a.x - this.at.x) <= Math.abs(b.x - this.at.x) ? a : b));
    }

    // About the point that is shown, else about the middle.
    zoom(factor) {
      const {plot} = this;
      const point = this.at;
      plot.batch(() => {
        for (const key of this.data.drawn === "lines" ? ["x"] : ["x", "y"]) {
          const to = value => forward[this.kind[key]](value, this.data[key].least);
          const {min, max} = plot.scales[key];
          const [low, high, first, last] = [min, max, ...this.whole[key]].map(to);
          const middle = point ? to(point[key]) : (low + high) / 2;
          const [a, b] = [Math.max(first, middle + (low - middle) * factor), Math.min(last, middle + (high - middle) * factor)];
          plot.setScale(key, {min: backward[this.kind[key]](a), max: backward[this.kind[key]](b)});
        }
      });
      this.show(point && this.inside(point) ? point : null);
    }

    point(key) {
      this.pointed = this.data.series.some(one => one.key === key || one.run?.includes(key)) ? key : undefined;
      this.plot?.redraw(false);
    }

    // Saving: the whole chart in the colours of paper, with its title.

    get svg() {
      return saving.onPaper(this.box, style => {
        const [width, height] = this.still.getAttribute("viewBox").split(" ").slice(2).map(Number);
        return saving.file(this.smoothed(saving.styled(this.still)).childNodes, width, height, this.data.title, style);
      });
    }

    // The drawing with each curve as smooth as it is on the screen, over the faint one.
    smoothed(still) {
      for (const curve of this.chosen.smooth ? still.querySelectorAll(".curve:not(.stroke-level)") : []) {
        const places = curve.getAttribute("d").match(/[\d.]+ [\d.]+/g).map(place => place.split(" ").map(Number));
        const smooth = curve.cloneNode();
        smooth.setAttribute("d", `M${averaged(places, this.chosen.smooth).map(place => place.join(" ")).join("L")}`);
        curve.setAttribute("opacity", FAINT);
        curve.after(smooth);
      }
      return still;
    }

    get csv() {
      const {series, by, y} = this.data;
      return saving.csv([["series", ...by, y.label], ...series.flatMap(one => one.x.map((_, index) =>
        [one.run?.[index] ?? one.name, ...by.map((_, number) => along(one, number, index)), one.y[index]]))]);
    }
  }

  // The names of the series are switches of their colours.
  const names = [...document.querySelectorAll("[data-series] [data-run]")];
  const colourNames = () => names.forEach(name => {
    const colour = colours.get(name.dataset.run);
    const shown = name.querySelector("[class*=stroke-]");
    shown.setAttribute("class", shown.getAttribute("class").replace(/stroke-\w+/, `stroke-${colour}`));
    name.querySelector("button")?.setAttribute("aria-pressed", colour !== "rest");
  });
  const again = () => charts.forEach(chart => chart.draw());

  charts.push(...[...document.querySelectorAll(".chart")].map(box => new Chart(box)));
  for (const series of charts.flatMap(chart => chart.data.series)) {
    if (series.series !== "level" && !colours.has(series.key)) give(series.key, series.series);
  }
  most = Math.max(COLOURED, asked.length);
  for (const name of names) {
    if (!colours.has(name.dataset.run)) continue;
    const button = element("button", "");
    button.type = "button";
    button.title = "In colour or in grey";
    button.append(...name.childNodes);
    name.append(button);
    button.addEventListener("click", () => { toggle(name.dataset.run); colourNames(); again(); });
  }
  colourNames();
  again();
  // The curve or the mark of the run that is pointed at in a legend or a table stands out.
  for (const group of document.querySelectorAll("[data-runs]")) {
    const point = key => charts.forEach(chart => chart.point(key));
    for (const start of ["pointerover", "focusin"]) {
      group.addEventListener(start, event => point(event.target.closest("[data-run]")?.dataset.run));
    }
    for (const end of ["pointerleave", "focusout"]) group.addEventListener(end, () => point());
  }
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
})();
