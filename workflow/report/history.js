// The page has the newest runs as a table and all runs as data. This shows the data as two charts and as a table of pages; a
// filter, and what is selected in the charts, choose its rows, and ticked runs give the commands that diff and compare them.
(() => {
  const source = document.getElementById("runs");
  if (!source) return;
  const data = JSON.parse(source.textContent);
  const place = id => document.getElementById(id);
  const element = (name, properties, ...children) => {
    const node = Object.assign(document.createElement(name), properties);
    node.append(...children);
    return node;
  };
  const {svg} = saving;

  // Columns: {key, kind, text and value of a run}; a run without a value has null. kind: time, share, number or name.
  const collator = new Intl.Collator("en", {numeric: true});
  const compare = (a, b) => typeof a === "number" && typeof b === "number" ? a - b : collator.compare(a, b);
  const runs = data.version.map((_, run) => run);
  const finished = runs.filter(run => !data.fault[run]);
  const coded = ({values, of}) => run => values[typeof of === "number" ? of : of[run]];   // undefined for a run without it
  const named = (key, text) => ({key, kind: "name", text, value: run => text(run) || null});
  const columns = new Map([
    {key: "made", kind: "time", text: run => data.made[run].slice(0, 16).replace("T", " "), value: run => Date.parse(data.made[run])},
    named("run", run => data.name[run] || data.version[run]),
    ...data.metrics.map(({key, values, texts, share}) =>
      ({key, kind: share ? "share" : "number", text: run => texts[run], value: run => values[run]})),
    ...Object.entries(data.settings).map(([key, column]) => {
      const text = coded(column);
      const numbers = column.values.every(value => value !== "" && !Number.isNaN(Number(value)));
      const value = run => text(run) === undefined ? null : numbers ? Number(text(run)) : text(run);
      return {key, kind: numbers ? "number" : "name", text: run => text(run) ?? "", value};
    }),
    named("others", run => data.own.slice(data.columns.length)
      .filter(([key, often]) => columns.get(key).text(run) && columns.get(key).text(run) !== often).map(([key]) => `${key} ${columns.get(key).text(run)}`).join(", ")),
  ].map(column => [column.key, column]));
  const metrics = data.metrics.filter(({values}) => values.some(value => value !== null)).map(({key}) => key);
  const settings = data.own.map(([key]) => key).filter(key => finished.some(run => columns.get(key).value(run) !== null));
  const valuesOf = column => [...new Set(finished.map(column.value))].filter(value => value !== null).sort(compare);

  // Which rows: words that they hold, and ranges of the axes of charts. Ranges are places on an axis, 0 to 1.
  const words = runs.map(run => [data.version[run], columns.get("made").text(run), data.name[run], ...data.tags[run], data.fault[run],
    data.notes[run], ...Object.keys(data.settings).filter(key => columns.get(key).text(run))
      .map(key => `${key}=${columns.get(key).text(run)}`)].join(" ").toLowerCase());
  const ranges = new Map();   // axis -> {scale, column, range: [low, high]}
  const inside = ({scale, column, range}, run) => {
    const value = column.value(run);
    return value !== null && !data.fault[run] && scale.place(value) >= range[0] - 1e-9 && scale.place(value) <= range[1] + 1e-9;
  };
  let chosen = new Set(runs);
  function choose() {
    const asked = place("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
    chosen = new Set(runs.filter(run => asked.every(word => words[run].includes(word))
      && [...ranges.values()].every(axis => inside(axis, run))));
    place("filtered").textContent = asked.length || ranges.size ? `${chosen.size.toLocaleString("en")} of ${runs.length.toLocaleString("en")}` : "";
    place("clear").hidden = !ranges.size;
    for (const mark of document.querySelectorAll(".plot [data-run]")) mark.classList.toggle("off", !chosen.has(Number(mark.dataset.run)));
    page = 0;
    show();
  }

  // The table.
  const table = place("history");
  const heads = [...table.tHead.rows[0].cells];
  const order = {key: "made", direction: -1};
  let sorted = runs, page = 0, whole = false, metric = columns.get(metrics[0]);
  const columnOf = head => head.dataset.column === "metric" ? metric : columns.get(head.dataset.column);
  function sort() {
    const column = order.key === "metric" ? metric : columns.get(order.key);
    const values = runs.map(column.value);
    sorted = [...runs].sort((a, b) => values[a] === null || values[b] === null ? (values[a] === null) - (values[b] === null)
      : order.direction * compare(values[a], values[b]));
  }
  function sortBy(key, direction) {
    Object.assign(order, {key, direction});
    for (const head of heads) head.removeAttribute("aria-sort");
    heads.find(head => head.dataset.column === key)?.setAttribute("aria-sort", direction > 0 ? "ascending" : "descending");
    page = 0;
    sort();
    show();
  }

  const cell = (column, run, head) => {
    const node = element("td", {className: head.className});
    node.append(column.text(run) || (column.key === "others" ? "" : "–"));
    if (column.key === "others") node.title = column.text(run);
    else node.dataset.label = {"training loss": "loss"}[column.key] ?? column.key;
    if (column.key === "accuracy") {
      for (const note of [data.interval[run], data.notes[run]].filter(Boolean)) node.append(" ", element("small", {}, note));
    }
    return node;
  };
  const rowOf = run => {
    const text = data.name[run] && !data.fault[run] ? data.name[run] : element("code", {}, data.version[run]);
    const tags = data.tags[run].flatMap(tag => [" ", element("span", {className: "tag"}, tag)]);
    const row = element("tr", {className: data.fault[run] ? "faulty" : ""});
    row.dataset.row = run;
    const first = row.appendChild(element("th", {scope: "row"}, ...data.fault[run] ? [text] : [tick(run), " ",
      element("a", {href: `${data.up}report/${data.version[run]}/report.html`, title: data.version[run]}, text)], ...tags));
    const rest = heads.slice(1).filter(head => !data.fault[run] || head.dataset.column === "made");
    row.append(first, ...rest.map(head => cell(columnOf(head), run, head)));
    if (data.fault[run]) row.append(element("td", {className: "reason", colSpan: heads.length - 2}, data.fault[run]));
    return row;
  };
  function show() {
    const rows = sorted.filter(run => chosen.has(run));
    const size = whole ? rows.length || 1 : data.listed;
    const [from, to] = [page * size, Math.min((page + 1) * size, rows.length)];
    table.tBodies[0].replaceChildren(...rows.slice(from, to).map(rowOf));
    const [all, first, last, left] = [rows.length, from + 1, to, rows.length - to + from].map(number => number.toLocaleString("en"));
    place("range").textContent = rows.length <= data.listed ? "" : `Rows ${first} to ${last} of ${all}${to - from < rows.length ? `; ${left} are left out.` : ""}`;
    turn.hidden = rows.length <= data.listed;
    [back.disabled, on.disabled] = [whole || !page, whole || to === rows.length];
  }
  const button = (text, act) => element("button", {type: "button", onclick: act}, text);
  const back = button("Previous", () => { page--; show(); });
  const on = button("Next", () => { page++; show(); });
  const every = button("All on one page", () => { whole = !whole; page = 0; every.setAttribute("aria-pressed", whole); show(); });
  every.setAttribute("aria-pressed", false);
  const turn = element("span", {className: "controls"}, back, on, every);
  place("range").after(turn);

  // Ticked runs.
  const picked = new Set();
  const tick = run => element("label", {className: "tick"}, element("input", {type: "checkbox", className: "pick", value: data.version[run],
    checked: picked.has(run), ariaLabel: `Compare ${data.version[run]}`,
    onchange: event => { picked[event.target.checked ? "add" : "delete"](run); commands(); }}));
  const quoted = text => `'${text.replaceAll("'", "'\\''")}'`;
  const entry = run => Object.fromEntries(Object.entries(data.entries).map(([key, column]) => [key, coded(column)(run)])
    .filter(([, value]) => value !== undefined));
  function commands() {
    const box = place("picked");
    box.hidden = !picked.size;
    if (picked.size < 2) {
      box.textContent = "Tick one more run to get the commands that diff and compare the two.";
      return;
    }
    const lines = [`.venv/bin/snakemake results/compare.html --config ${quoted(`compare=${JSON.stringify([...picked].map(entry), null, 1).replace(/\n */g, " ")}`)}`];
    if (picked.size === 2) lines.unshift(`.venv/bin/snakemake results/diff.html --config 'diff=[${[...picked].map(run => data.version[run])}]'`);
    const left = [...new Set([...picked].flatMap(run => data.unsaid[run]))];
    box.replaceChildren(...lines.map(line => element("code", {className: "command"}, line)),
      left.length ? `Not in the second command, because a report does not keep them as config.yaml has them: ${left.join(", ")}.` : "");
  }

  // Charts. An axis: where a value lies on it, 0 to 1, and its ticks [place, text].
  const CHARACTER = 6.6, NAMED = 8, COLOURED = 6;
  const MARKS = {1: "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0z", 2: "M-3.5-3.5h7v7h-7z", 3: "M0-4.8 4.4 3.2h-8.8z", 4: "M0-5.2 5.2 0 0 5.2-5.2 0z",
    5: "M0 4.8 4.4-3.2h-8.8z", 6: "M0-4.8 4.6-1.5 2.8 3.9h-5.6L-4.6-1.5z"};
  const short = (text, length) => text.length > length ? `${text.slice(0, length - 1)}…` : text;
  function scaleOf(column, count, {names = false, more = []} = {}) {
    const values = [...valuesOf(column), ...more].sort(compare);
    if (column.kind === "name" || names && values.length <= NAMED) {
      const texts = new Map(finished.map(run => [column.value(run), column.text(run)]));
      const at = new Map(values.map((value, number) => [value, (number + .5) / values.length]));
      const step = Math.ceil(values.length / (2 * count));
      return {place: value => at.get(value), ticks: values.filter((_, number) => number % step === 0).map(value => [at.get(value), texts.get(value)])};
    }
    const [low, high] = [values[0] ?? 0, values.at(-1) ?? 0];
    const share = column.kind === "share";
    const axis = {percent: share, least: share ? Math.max(Math.min(.5, ...values.filter(value => value < 1).map(value => 1 - value)) / 2, 1e-6) : 1e-12};
    const kind = share ? "error" : column.kind === "number" && low > 0 && high > 20 * low ? "log" : "linear";
    const to = value => axes.forward[kind](value, axis.least);
    const room = .06 * (to(high) - to(low)) || (column.kind === "time" ? 4e6 : kind === "linear" ? Math.abs(low) / 4 || .5 : .5);
    const ends = [share ? Math.max(0, to(low) - room) : to(low) - room, to(high) + room];
    const spot = value => (to(value) - ends[0]) / (ends[1] - ends[0]);
    if (column.kind === "time") {
      const long = ends[1] - ends[0], digits = long < 6e5 ? [11, 19] : long < 2e8 ? [5, 16] : [0, 10];
      return {place: spot, ticks: Array.from({length: count}, (_, number) => (number + .5) / count).map(at =>
        [at, new Date(ends[0] + at * (ends[1] - ends[0])).toISOString().slice(...digits).replace("T", " ")])};
    }
    const ticks = axes.ticksOf(axis, kind, axes.backward[kind](ends[0]), share && high === 1 ? 1 : axes.backward[kind](ends[1]), count);
    return {place: spot, ticks: ticks.map(value => [spot(value), axes.tickText(axis, value)]).filter(([at]) => at >= 0 && at <= 1)};
  }

  // The class of each run, and their names: colours for few values, steps from pale to strong for many numbers.
  function paint(column) {
    if (!column) return {of: () => "1", legend: []};
    const values = valuesOf(column);
    if (column.kind !== "name" && values.length > COLOURED) {
      const scale = scaleOf(column, 5), texts = new Map(finished.map(run => [column.value(run), column.text(run)]));
      const step = value => `step-${Math.min(5, 1 + Math.floor(5 * scale.place(value)))}`;
      return {of: run => column.value(run) === null ? "rest" : step(column.value(run)), legend: [1, 2, 3, 4, 5].flatMap(number => {
        const here = values.filter(value => step(value) === `step-${number}`).map(value => texts.get(value));
        return here.length ? [[`step-${number}`, [...new Set([here[0], here.at(-1)])].join(" to ")]] : [];
      })};
    }
    const often = value => finished.filter(run => column.value(run) === value).length;
    const first = values.length > COLOURED ? [...values].sort((a, b) => often(b) - often(a)).slice(0, COLOURED).sort(compare) : values;
    const texts = new Map(finished.map(run => [column.value(run), column.text(run)]));
    const legend = first.map((value, number) => [`${number + 1}`, texts.get(value)]);
    const rest = finished.some(run => !first.includes(column.value(run)));
    return {of: run => `${first.indexOf(column.value(run)) + 1 || "rest"}`, legend: rest ? [...legend, ["rest", "others"]] : legend};
  }

  // What is shown of a run: a ring around its mark, its line, and beside it what it is.
  let marks = new Map(), tip = null;
  function point(run) {
    document.querySelectorAll(".plot .ring, .plot .pointed").forEach(mark => mark.matches(".ring") ? mark.remove() : mark.classList.remove("pointed"));
    tip.hidden = run === null || !marks.has(run);
    document.querySelector(`#parallel [data-run="${run}"]`)?.classList.add("pointed");
    if (tip.hidden) return;
    const [x, y] = marks.get(run);
    place("scatter").querySelector("svg").append(svg("circle", {class: "ring", cx: x, cy: y, r: 8}));
    tip.textContent = `${columns.get("run").text(run)}: ${[y_.value, x_.value].map(key => `${key} ${columns.get(key).text(run)}`).join(", ")}`;
    const half = tip.offsetWidth / 2;
    tip.style.left = `${Math.min(Math.max(x, half), place("scatter").clientWidth - half)}px`;
    tip.style.top = `${y > 60 ? y - tip.offsetHeight - 12 : y + 14}px`;
  }

  // A range that is dragged, or set by arrow keys. spots: the places that keys go to, [[x, y]]; set: of (from, to), null for none.
  function brush(shape, toPlace, spots, set, look) {
    let start = null, at = null, anchor = null;
    shape.addEventListener("pointerdown", event => { start = event; shape.setPointerCapture(event.pointerId); });
    shape.addEventListener("pointermove", event => {
      if (!start) return look?.(event);
      if (Math.hypot(event.clientX - start.clientX, event.clientY - start.clientY) > 4) set(toPlace(start), toPlace(event));
    });
    shape.addEventListener("pointerup", event => {
      if (start && Math.hypot(event.clientX - start.clientX, event.clientY - start.clientY) <= 4) set(null);
      start = null;
    });
    shape.addEventListener("pointercancel", () => { start = null; });
    shape.addEventListener("keydown", event => {
      const [along, way] = {ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowUp: [1, 1], ArrowDown: [1, -1]}[event.key] ?? [];
      if (event.key === "Escape") set(at = anchor = null);
      if (way === undefined) return;
      event.preventDefault();
      const ordered = [...spots].sort((a, b) => a.at[along] - b.at[along] || a.at[1 - along] - b.at[1 - along]);
      const now = ordered.indexOf(at);
      at = ordered[at ? Math.min(Math.max(now + way, 0), ordered.length - 1) : way > 0 ? 0 : ordered.length - 1];
      if (!event.shiftKey || !anchor) anchor = at;
      set(event.shiftKey || at.run === undefined ? anchor.at : undefined, at.at, at.run);
    });
  }
  const setRange = (axis, column, scale, a, b) => ranges.set(axis, {column, scale, range: [Math.min(a, b), Math.max(a, b)]});

  const [x_, y_, colour_] = ["x", "y", "colour"].map(place);
  const HEIGHT = 260, TOP = 28, BOTTOM = 216;
  function drawScatter(painted) {
    const box = place("scatter"), width = box.clientWidth;
    const [x, y] = [columns.get(x_.value), columns.get(y_.value)];
    const ends = y.key === "accuracy" && finished.length <= 60 ? data.ends : [];
    const [across, up] = [scaleOf(x, width < 420 ? 3 : 4), scaleOf(y, 5, {more: ends.flat().filter(end => end !== null)})];
    const left = 14 + CHARACTER * Math.max(...up.ticks.map(([, text]) => text.length)), right = width - 12;
    const toX = at => left + at * (right - left), toY = at => BOTTOM - at * (BOTTOM - TOP);
    const drawn = svg("svg", {viewBox: `0 0 ${width} ${HEIGHT}`, tabindex: 0, role: "group", "aria-roledescription": "chart",
      "aria-label": `${y.key} by ${x.key}. Arrow keys: runs, with Shift to select, Escape to clear.`},
      svg("text", {x: left, y: 14}, y.key), svg("text", {x: right, y: HEIGHT - 6, "text-anchor": "end"}, x.key),
      ...up.ticks.flatMap(([at, text]) => [svg("path", {class: "grid", d: `M${left} ${toY(at)}H${right}`}),
        svg("text", {x: left - 8, y: toY(at) + 4, "text-anchor": "end"}, text)]));
    const length = Math.max(3, Math.floor((right - left) / Math.max(1, across.ticks.length) / CHARACTER) - 1);
    for (const [at, text] of across.ticks) {
      drawn.append(svg("path", {class: "grid", d: `M${toX(at)} ${BOTTOM}v5`}), svg("text", {x: toX(at), y: BOTTOM + 19, "text-anchor": "middle"}, short(text, length)));
    }
    marks = new Map(finished.filter(run => x.value(run) !== null && y.value(run) !== null)
      .map(run => [run, [toX(across.place(x.value(run))), toY(up.place(y.value(run)))]]));
    for (const [run, [a, b]] of marks) {
      const [low, high] = ends[run]?.map(value => toY(up.place(value))) ?? [b, b];
      if (low > high) drawn.append(svg("path", {class: `interval c-${painted.of(run)}`, "data-run": run, d: `M${a} ${low}V${high}`}));
      const colour = painted.of(run);
      drawn.append(svg("path", {class: `mark c-${colour}`, "data-run": run, d: MARKS[colour] ?? MARKS[1], transform: `translate(${a} ${b})`}));
    }
    const band = drawn.appendChild(svg("rect", {class: "band", width: 0, height: 0}));
    const put = () => {
      const [h, v] = [ranges.get("x")?.range, ranges.get("y")?.range];
      const shape = h ? {x: toX(h[0]) - 6, y: toY(v[1]) - 6, width: toX(h[1]) - toX(h[0]) + 12, height: toY(v[0]) - toY(v[1]) + 12} : {width: 0, height: 0};
      Object.entries(shape).forEach(([key, value]) => band.setAttribute(key, value));
    };
    const toPlace = event => {
      const {left: zero, top} = drawn.getBoundingClientRect();
      return [(event.clientX - zero - left) / (right - left), (BOTTOM - event.clientY + top) / (BOTTOM - TOP)];
    };
    const nearest = event => {
      const {left: zero, top} = drawn.getBoundingClientRect();
      const away = ([, [a, b]]) => Math.hypot(a - event.clientX + zero, b - event.clientY + top);
      const best = [...marks].reduce((a, b) => !a || away(b) < away(a) ? b : a, null);
      point(best && away(best) < 24 ? best[0] : null);
    };
    const spots = [...marks.keys()].map(run => ({run, at: [across.place(x.value(run)), up.place(y.value(run))]}));
    brush(drawn, toPlace, spots, (from, to, run) => {
      ["x", "y"].forEach(axis => ranges.delete(axis));
      if (from) [[x, across, "x"], [y, up, "y"]].forEach(([column, scale, axis], at) => setRange(axis, column, scale, from[at], to[at]));
      put();
      choose();
      point(run ?? null);
    }, nearest);
    for (const kind of ["pointerleave", "blur"]) drawn.addEventListener(kind, () => point(null));
    put();
    tip = element("output", {className: "tip", hidden: true});
    box.replaceChildren(drawn, tip, save(box, `${y.key} by ${x.key}`, drawn, width));
  }

  function drawParallel(painted) {
    const box = place("parallel"), width = box.clientWidth;
    box.hidden = !settings.length;
    if (!settings.length) return;
    const shown = [...settings.slice(0, Math.max(2, Math.floor(width / 96) - 1)), y_.value];
    const gap = (width - 90) / (shown.length - 1);
    const drawn = svg("svg", {viewBox: `0 0 ${width} ${HEIGHT}`, role: "group", "aria-label": `The settings that differ, and ${y_.value}: a line for each run`});
    const toY = at => BOTTOM + 24 - at * (BOTTOM + 24 - TOP - 8);
    const axesShown = shown.map((key, number) => ({key, x: 36 + number * gap, column: columns.get(key), scale: scaleOf(columns.get(key), 4, {names: true})}));
    for (const run of finished) {
      const spots = axesShown.map(({x, column, scale}) => column.value(run) === null ? null : `${x} ${toY(scale.place(column.value(run))).toFixed(1)}`).filter(Boolean);
      if (spots.length > 1) drawn.append(svg("path", {class: `line c-${painted.of(run)}`, "data-run": run, d: `M${spots.join("L")}`}));
    }
    drawn.style.setProperty("--many", Math.max(.15, Math.min(.7, 60 / finished.length)));
    for (const {key, x, column, scale} of axesShown) {
      const group = svg("g", {class: "axis", tabindex: 0, role: "group", "aria-roledescription": "axis",
        "aria-label": `${key}. Arrow keys select a value, with Shift a range, Escape clears.`},
        svg("rect", {class: "grip", x: x - 16, y: TOP, width: 32, height: toY(0) - TOP + 8}),
        svg("path", {d: `M${x} ${toY(1)}V${toY(0)}`}),
        svg("text", {class: "name", x, y: 16, "text-anchor": "middle"}, svg("title", {}, key), short(key, Math.floor(Math.min(gap, 84) / 6))),
        ...scale.ticks.map(([at, text]) => svg("text", {class: "at", x: x + 5, y: toY(at) + 4}, svg("title", {}, text), short(text, Math.max(3, Math.floor((gap - 8) / CHARACTER))))));
      const band = group.insertBefore(svg("rect", {class: "band", x: x - 7, width: 14, height: 0}), group.children[1]);
      const put = () => {
        const range = ranges.get(key + " ")?.range ?? [0, 0];
        band.setAttribute("y", toY(range[1]) - 7);
        band.setAttribute("height", ranges.has(key + " ") ? toY(range[0]) - toY(range[1]) + 14 : 0);
      };
      const toPlace = event => {
        const {top} = drawn.getBoundingClientRect();
        return [0, (toY(0) - event.clientY + top) / (toY(0) - toY(1))];
      };
      const spots = [...new Set(finished.map(column.value))].filter(value => value !== null).map(value => ({at: [scale.place(value), scale.place(value)]}));
      brush(group, toPlace, spots, (from, to) => {
        ranges.delete(key + " ");   // beside those of the other chart
        if (from) setRange(key + " ", column, scale, from[1], to[1]);
        put();
        choose();
      });
      put();
      drawn.append(group);
    }
    box.replaceChildren(drawn, save(box, "Settings that differ", drawn, width));
  }

  const save = (box, title, drawn, width) => element("div", {className: "controls saves"}, saving.menu({title,
    svg: () => saving.onPaper(box, style => saving.file(saving.styled(drawn).childNodes, width, HEIGHT, title, style)),
    csv: () => saving.csv([["run", "made", ...metrics, ...settings], ...sorted.filter(run => chosen.has(run) && !data.fault[run]).map(run =>
      [data.version[run], data.made[run], ...[...metrics, ...settings].map(key => columns.get(key).value(run))])])}));

  let width = 0;
  function draw() {
    width = x_ ? place("scatter").clientWidth : 0;
    if (!width) return;
    const painted = paint(columns.get(colour_.value));
    drawScatter(painted);
    drawParallel(painted);
    place("colours").replaceChildren(...painted.legend.map(([colour, text]) => {
      const key = svg("svg", {class: "plot-key", viewBox: "-6 -6 12 12", "aria-hidden": "true"}, svg("path", {class: `mark c-${colour}`, d: MARKS[colour] ?? MARKS[1]}));
      return element("li", {}, key, `${text}`);
    }));
    choose();
  }

  // The controls.
  const option = key => new Option(key, key);
  if (x_) {
    for (const part of document.querySelectorAll(".drawn-by-script")) part.hidden = false;
    y_.append(...metrics.map(option));
    x_.append(...["made", ...settings, ...metrics].map(option));
    colour_.append(new Option("none", ""), ...[...settings, ...metrics].map(option));
    colour_.value = settings.find(key => valuesOf(columns.get(key)).length <= COLOURED) ?? "";
    for (const select of [x_, y_, colour_]) {
      select.addEventListener("change", () => {
        if (select === x_) ["x", "y"].forEach(axis => ranges.delete(axis));
        if (select === y_) ranges.clear();
        if (select === y_ && heads.some(head => head.dataset.column === "metric")) {
          metric = columns.get(y_.value);
          const head = heads.find(other => other.dataset.column === "metric");
          head.querySelector("button").textContent = metric.key;
          if (order.key === "metric") sort();
        }
        draw();
      });
    }
    place("clear").addEventListener("click", () => { ranges.clear(); draw(); });
    new ResizeObserver(() => { if (place("scatter").clientWidth !== width) draw(); }).observe(place("scatter"));
    for (const [kind, there] of [["pointerover", true], ["focusin", true], ["pointerleave", false]]) {
      table.tBodies[0].addEventListener(kind, event => tip && point(there ? Number(event.target.closest("tr").dataset.row) : null));
    }
  }
  const FALLING = /loss|time|memory|divergence/;
  const firstWay = head => ["made", "metric"].includes(head.dataset.column) && !FALLING.test(columnOf(head).key) ? -1 : 1;
  const menu = element("select", {onchange: () => menu.value ? sortBy(menu.value, firstWay(heads.find(head => head.dataset.column === menu.value))) : sortBy("made", -1)},
    new Option("as listed", ""), ...heads.map(head => new Option(head.textContent, head.dataset.column)));
  table.before(element("label", {className: "sort-menu"}, "Sort by ", menu));
  for (const head of heads) {
    const label = button(head.textContent, () => sortBy(head.dataset.column, order.key === head.dataset.column ? -order.direction : firstWay(head)));
    head.replaceChildren(label);
  }
  table.classList.add("sorts");
  place("filter").closest("[hidden]").hidden = false;
  place("filter").addEventListener("input", choose);
  sortBy("made", -1);
  draw();
})();
