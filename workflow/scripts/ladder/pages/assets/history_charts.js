// Two charts of all runs of the history, drawn from the columns of history.js: any number over any setting, and a line for each
// run through the settings that differ. Ranges that are drawn in them, or set by keys, choose the rows of the table.
(() => {
  if (!runsPage || !document.getElementById("scatter")) return;
  const {data, place, element, compare, columns, ranges, finished} = runsPage;
  const {svg} = saving;
  const CHARACTER = 6.6, NAMED = 8, COLOURED = 6;
  const HEIGHT = 260, TOP = 28, BOTTOM = 216, FLOOR = 240;
  const {outline} = charts;
  const [x_, y_, colour_] = ["x", "y", "colour"].map(place);
  const has = key => finished.some(run => columns.get(key).value(run) !== null);
  const metrics = data.metrics.map(({key}) => key).filter(has);
  const settings = data.own.map(([key]) => key).filter(has);
  const textsOf = column => new Map(finished.map(run => [column.value(run), column.text(run)]));
  const valuesOf = column => [...textsOf(column).keys()].filter(value => value !== null).sort(compare);

  // An axis: where a value lies on it, 0 to 1, and its ticks [place, text]. more: further values that it holds.
  function scaleOf(column, count, {names = false, more = []} = {}) {
    const values = [...valuesOf(column), ...more].sort(compare), [low, high] = [values[0], values.at(-1)];
    if (column.kind === "name" || names && values.length <= NAMED) {
      const texts = textsOf(column), step = Math.ceil(values.length / (2 * count));
      const spots = new Map(values.map((value, number) => [value, (number + .5) / values.length]));
      return {place: value => spots.get(value),
        ticks: values.filter((_, number) => number % step === 0).map(value => [spots.get(value), texts.get(value)])};
    }
    const share = column.kind === "share", errors = values.map(value => 1 - value).filter(value => value > 0);
    const axis = {percent: share, least: share ? Math.max(Math.min(.5, ...errors) / 2, 1e-6) : 1e-12};
    const kind = share ? "error" : column.kind === "number" && low > 0 && high > 20 * low ? "log" : "linear";
    const [to, from] = [value => axes.forward[kind](value, axis.least), axes.backward[kind]];
    const alone = column.kind === "time" ? 4e6 : kind === "linear" && low ? Math.abs(low) / 4 : .5;
    const room = .06 * (to(high) - to(low)) || alone;
    const ends = [share ? Math.max(0, to(low) - room) : to(low) - room, to(high) + room], long = ends[1] - ends[0];
    const spot = value => (to(value) - ends[0]) / long;
    if (column.kind === "time") {
      const digits = long < 6e5 ? [11, 19] : long < 2e8 ? [5, 16] : [0, 10];
      const text = at => new Date(ends[0] + at * long).toISOString().slice(...digits).replace("T", " ");
      return {place: spot, ticks: Array.from({length: count}, (_, number) => (number + .5) / count).map(at => [at, text(at)])};
    }
    const ticks = axes.ticksOf(axis, kind, from(ends[0]), share && high === 1 ? 1 : from(ends[1]), count);
    const texts = ticks.map(value => [spot(value), axes.tickText(axis, value)]);
    return {place: spot, ticks: texts.filter(([at]) => at >= 0 && at <= 1)};
  }

  // The class of each run, and their names: colours for few values, steps from pale to strong for many numbers.
  function paint(column) {
    if (!column) return {of: () => "1", legend: []};
    const values = valuesOf(column), texts = textsOf(column);
    if (column.kind !== "name" && values.length > COLOURED) {
      const scale = scaleOf(column, 5);
      const step = value => Math.min(5, 1 + Math.floor(5 * scale.place(value)));
      const steps = [1, 2, 3, 4, 5].map(number => values.filter(value => step(value) === number));
      const span = here => [...new Set([here[0], here.at(-1)])].map(value => texts.get(value)).join(" to ");
      return {of: run => column.value(run) === null ? "rest" : `step-${step(column.value(run))}`,
        legend: steps.flatMap((here, at) => here.length ? [[`step-${at + 1}`, span(here)]] : [])};
    }
    const often = value => finished.filter(run => column.value(run) === value).length;
    const first = [...values].sort((a, b) => often(b) - often(a)).slice(0, COLOURED).sort(compare);
    const rest = finished.some(run => !first.includes(column.value(run)));
    return {of: run => `${first.indexOf(column.value(run)) + 1 || "rest"}`,
      legend: [...first.map((value, at) => [`${at + 1}`, texts.get(value)]), ...rest ? [["rest", "others"]] : []]};
  }

  const label = (text, x, y, anchor, length = 99, className = "") =>
    svg("text", {x, y, "text-anchor": anchor, class: className},
      ...text.length > length ? [svg("title", {}, text), `${text.slice(0, length - 1)}…`] : [text]);

  // What is shown of a run that is pointed at: a ring around its mark, its line, and what it is.
  let marks = new Map();   // run -> [x, y]
  const tip = element("output", {className: "tip", hidden: true});
  function point(run) {
    for (const mark of document.querySelectorAll(".plot .ring")) mark.remove();
    for (const line of document.querySelectorAll(".plot .pointed")) line.classList.remove("pointed");
    tip.hidden = !marks.has(run);
    if (tip.hidden) return;
    const [x, y] = marks.get(run), half = tip.offsetWidth / 2;
    document.querySelector(`#parallel [data-run="${run}"]`)?.classList.add("pointed");
    place("scatter").querySelector("svg").append(svg("circle", {class: "ring", cx: x, cy: y, r: 8}));
    const shown = [y_, x_].map(({value}) => `${value} ${columns.get(value).text(run)}`);
    tip.textContent = [columns.get("run").text(run), ...shown].join(", ");
    tip.style.left = `${Math.min(Math.max(x, half), place("scatter").clientWidth - half)}px`;
    tip.style.top = `${y > 60 ? y - tip.offsetHeight - 12 : y + 14}px`;
  }

  // A band over a shape that is dragged, or set by arrow keys. dims: the horizontal and the vertical one, {id, column, scale,
  // pixel: of a place}, without an id for one that cannot be chosen; spots: the places that keys go to, {at: [x, y], run}.
  function brush(shape, dims, spots) {
    const band = shape.appendChild(svg("rect", {class: "band"}));
    const put = () => {
      const sides = dims.map(({id, pixel}) => id ? ranges.get(id)?.range.map(pixel) : [pixel(0), pixel(0)]);
      band.style.display = sides.includes(undefined) ? "none" : "";
      if (band.style.display) return;
      sides.forEach((side, way) => {
        band.setAttribute("xy"[way], Math.min(...side) - 7);
        band.setAttribute(["width", "height"][way], Math.abs(side[1] - side[0]) + 14);
      });
    };
    const set = (from, to, run) => {
      dims.filter(({id}) => id).forEach(({id, column, scale}) => {
        ranges.delete(id);
        if (!from) return;
        const way = dims.findIndex(dim => dim.id === id), range = [from[way], to[way]].sort((a, b) => a - b);
        const inside = at => at >= range[0] - 1e-9 && at <= range[1] + 1e-9;
        ranges.set(id, {range, includes: run => column.value(run) !== null && inside(scale.place(column.value(run)))});
      });
      put();
      runsPage.choose();
      point(run);
    };
    const pixelsOf = event => {
      const box = (shape.ownerSVGElement ?? shape).getBoundingClientRect();
      return [event.clientX - box.left, event.clientY - box.top];
    };
    const placeOf = pixels => dims.map(({pixel}, way) => (pixels[way] - pixel(0)) / (pixel(1) - pixel(0)));
    const apart = (a, b) => Math.hypot(a[0] - b[0], a[1] - b[1]);
    let start = null, at = null, anchor = null;
    shape.addEventListener("pointerdown", event => {
      start = pixelsOf(event);
      shape.setPointerCapture(event.pointerId);
    });
    shape.addEventListener("pointermove", event => {
      const here = pixelsOf(event);
      if (start && apart(start, here) > 4) set(placeOf(start), placeOf(here));
      if (start || !dims[0].id) return;
      const near = spots.map(({run}) => [apart(marks.get(run), here), run]).reduce((a, b) => a[0] <= b[0] ? a : b, [24]);
      point(near[1]);
    });
    shape.addEventListener("pointerup", event => {
      if (start && apart(start, pixelsOf(event)) <= 4) set();
      start = null;
    });
    shape.addEventListener("pointercancel", () => { start = null; });
    shape.addEventListener("keydown", event => {
      const [along, way] = {ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowUp: [1, 1], ArrowDown: [1, -1]}[event.key] ?? [];
      if (event.key === "Escape") set(at = anchor = undefined);
      if (!way) return;
      event.preventDefault();
      const ordered = [...spots].sort((a, b) => a.at[along] - b.at[along] || a.at[1 - along] - b.at[1 - along]);
      const next = at ? ordered.indexOf(at) + way : way > 0 ? 0 : ordered.length - 1;
      at = ordered[Math.min(Math.max(next, 0), ordered.length - 1)];
      if (!event.shiftKey || !anchor) anchor = at;
      set(event.shiftKey || !dims[0].id ? anchor.at : undefined, at.at, at.run);
    });
    for (const kind of ["pointerleave", "blur"]) shape.addEventListener(kind, () => point());
    put();
  }

  function drawScatter(painted) {
    const box = place("scatter"), width = box.clientWidth, [x, y] = [x_, y_].map(({value}) => columns.get(value));
    const ends = y.key === "accuracy" && finished.length <= 60 ? data.ends : [];
    const [across, up] = [scaleOf(x, width < 420 ? 3 : 4), scaleOf(y, 5, {more: ends.flat().filter(end => end !== null)})];
    const left = 14 + CHARACTER * Math.max(...up.ticks.map(([, text]) => text.length)), right = width - 12;
    const toX = at => left + at * (right - left), toY = at => BOTTOM - at * (BOTTOM - TOP);
    const room = Math.max(3, Math.floor((right - left) / Math.max(1, across.ticks.length) / CHARACTER) - 1);
    const drawn = svg("svg", {viewBox: `0 0 ${width} ${HEIGHT}`, tabindex: 0, role: "group", "aria-roledescription": "chart",
      "aria-label": `${y.key} by ${x.key}. Arrow keys: runs, with Shift to select, Escape to clear.`},
      label(y.key, left, 14, "start"), label(x.key, right, HEIGHT - 6, "end"),
      ...up.ticks.flatMap(([at, text]) =>
        [svg("path", {class: "grid", d: `M${left} ${toY(at)}H${right}`}), label(text, left - 8, toY(at) + 4, "end")]),
      ...across.ticks.flatMap(([at, text]) =>
        [svg("path", {class: "grid", d: `M${toX(at)} ${BOTTOM}v5`}), label(text, toX(at), BOTTOM + 19, "middle", room)]));
    const spots = finished.filter(run => x.value(run) !== null && y.value(run) !== null)
      .map(run => ({run, at: [across.place(x.value(run)), up.place(y.value(run))]}));
    marks = new Map(spots.map(({run, at}) => [run, [toX(at[0]), toY(at[1])]]));
    for (const [run, [a, b]] of marks) {
      const colour = painted.of(run), [low, high] = ends[run]?.map(value => toY(up.place(value))) ?? [];
      if (high) drawn.append(svg("path", {class: `interval c-${colour}`, "data-run": run, d: `M${a} ${low}V${high}`}));
      drawn.append(svg("path",
        {class: `mark c-${colour}`, "data-run": run, d: outline(colour), transform: `translate(${a} ${b})scale(4)`}));
    }
    brush(drawn, [{id: "x", column: x, scale: across, pixel: toX}, {id: "y", column: y, scale: up, pixel: toY}], spots);
    box.replaceChildren(drawn, tip, save(box, `${y.key} by ${x.key}`, drawn, width));
  }

  function drawParallel(painted) {
    const box = place("parallel"), width = box.clientWidth;
    box.hidden = !settings.length;
    if (!settings.length) return;
    const keys = [...settings.slice(0, Math.max(2, Math.floor(width / 96) - 1)), y_.value];
    const gap = (width - 90) / (keys.length - 1), room = Math.max(3, Math.floor((gap - 8) / CHARACTER));
    const toY = at => FLOOR - at * (FLOOR - TOP - 8);
    const lines = keys.map((key, number) => {
      const column = columns.get(key), scale = scaleOf(column, 4, {names: true});
      const y = run => column.value(run) === null ? null : toY(scale.place(column.value(run)));
      return {key, column, scale, x: 36 + number * gap, y};
    });
    const drawn = svg("svg", {viewBox: `0 0 ${width} ${HEIGHT}`, role: "group",
      "aria-label": `The settings that differ, and ${y_.value}: a line for each run`});
    drawn.style.setProperty("--many", Math.max(.15, Math.min(.7, 60 / finished.length)));
    for (const run of finished) {
      const spots = lines.filter(({y}) => y(run) !== null).map(({x, y}) => `${x} ${y(run).toFixed(1)}`);
      if (spots.length < 2) continue;
      drawn.append(svg("path", {class: `line c-${painted.of(run)}`, "data-run": run, d: `M${spots.join("L")}`}));
    }
    for (const [number, {key, x, column, scale}] of lines.entries()) {
      const group = drawn.appendChild(svg("g", {class: "axis", tabindex: 0, role: "group", "aria-roledescription": "axis",
        "aria-label": `${key}. Arrow keys select a value, with Shift a range, Escape clears.`},
        svg("rect", {class: "grip", x: x - 16, y: TOP, width: 32, height: FLOOR - TOP + 8}),
        svg("path", {d: `M${x} ${toY(1)}V${FLOOR}`}),
        label(key, number && x, 16, number ? "middle" : "start", Math.floor(Math.min(gap, 84) / 6), "name"),
        ...scale.ticks.map(([at, text]) => label(text, x + 5, toY(at) + 4, "start", room, "at"))));
      const spots = valuesOf(column).map(value => ({at: [scale.place(value), scale.place(value)]}));
      brush(group, [{pixel: () => x}, {id: `axis ${key}`, column, scale, pixel: toY}], spots);
    }
    box.replaceChildren(drawn, save(box, "Settings that differ", drawn, width));
  }

  const save = (box, title, drawn, width) => {
    const keys = [...metrics, ...settings];
    const numbers = run => [data.version[run], data.made[run], ...keys.map(key => columns.get(key).value(run))];
    return element("div", {className: "controls saves"}, saving.menu({
      title, csv: () => saving.csv([["run", "made", ...keys], ...runsPage.rows().map(numbers)]),
      svg: () => saving.onPaper(box, style => saving.file(saving.styled(drawn).childNodes, width, HEIGHT, title, style)),
    }));
  };

  let width = 0;
  function draw() {
    width = place("scatter").clientWidth;
    if (!width) return;
    const painted = paint(columns.get(colour_.value));
    drawScatter(painted);
    drawParallel(painted);
    place("colours").replaceChildren(...painted.legend.map(([colour, text]) => element("li", {},
      svg("svg", {class: "plot-key", viewBox: "-6 -6 12 12", "aria-hidden": "true"},
        svg("path", {class: `mark c-${colour}`, d: outline(colour), transform: "scale(4)"})), text)));
    runsPage.choose();
  }

  const option = key => new Option(key, key);
  for (const part of document.querySelectorAll(".drawn-by-script")) part.hidden = false;
  y_.append(...metrics.map(option));
  x_.append(...["made", ...settings, ...metrics].map(option));
  colour_.append(new Option("none", ""), ...[...settings, ...metrics].map(option));
  colour_.value = settings.find(key => valuesOf(columns.get(key)).length <= COLOURED) ?? "";
  x_.addEventListener("change", () => { ["x", "y"].forEach(axis => ranges.delete(axis)); draw(); });
  y_.addEventListener("change", () => { ranges.clear(); runsPage.show(y_.value); draw(); });
  colour_.addEventListener("change", draw);
  place("clear").addEventListener("click", () => { ranges.clear(); draw(); });
  new ResizeObserver(() => { if (place("scatter").clientWidth !== width) draw(); }).observe(place("scatter"));
  const rows = runsPage.table.tBodies[0];
  for (const kind of ["pointerover", "focusin"]) {
    rows.addEventListener(kind, event => point(Number(event.target.closest("tr").dataset.row)));
  }
  rows.addEventListener("pointerleave", () => point());
  draw();
})();
