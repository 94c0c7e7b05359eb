// The page has the newest runs as a table and all runs as data. This makes pages of rows of them; a filter, and the ranges that
// history_charts.js sets, choose the rows, and ticked runs give the commands that diff and compare them.
const runsPage = (() => {
  const source = document.getElementById("runs");
  if (!source) return null;
  const data = JSON.parse(source.textContent);
  const place = id => document.getElementById(id);
  const element = (name, properties, ...children) => {
    const node = Object.assign(document.createElement(name), properties);
    node.append(...children);
    return node;
  };

  // Columns: {key, kind, text and value of a run}; a run without a value has null. kind: time, share, number or name.
  const collator = new Intl.Collator("en", {numeric: true});
  const compare = (a, b) => typeof a === "number" && typeof b === "number" ? a - b : collator.compare(a, b);
  const runs = data.version.map((_, run) => run);
  const coded = ({values, of}) => run => values[typeof of === "number" ? of : of[run]];   // undefined for a run without it
  const named = (key, text) => ({key, kind: "name", text, value: run => text(run) || null});
  const setting = ([key, column]) => {
    const text = coded(column);
    const numbers = column.values.every(value => value !== "" && !Number.isNaN(Number(value)));
    const value = run => text(run) === undefined ? null : numbers ? Number(text(run)) : text(run);
    return {key, kind: numbers ? "number" : "name", text: run => text(run) ?? "", value};
  };
  const moment = run => data.made[run].slice(0, 16).replace("T", " ");
  const others = run => data.own.slice(data.columns.length).map(([key, often]) => [key, columns.get(key).text(run), often])
    .filter(([, text, often]) => text && text !== often).map(([key, text]) => `${key} ${text}`).join(", ");
  const columns = new Map([
    {key: "made", kind: "time", text: moment, value: run => Date.parse(data.made[run])},
    named("run", run => data.name[run] || data.version[run]),
    ...data.metrics.map(({key, values, texts, share}) =>
      ({key, kind: share ? "share" : "number", text: run => texts[run], value: run => values[run]})),
    ...Object.entries(data.settings).map(setting),
    named("others", others),
  ].map(column => [column.key, column]));

  // Which rows: words that they hold, and ranges of the axes of charts, axis -> function of a run.
  const settings = run => Object.keys(data.settings).map(key => [key, columns.get(key).text(run)]).filter(([, text]) => text);
  const words = runs.map(run => [data.version[run], moment(run), data.name[run], ...data.tags[run], data.fault[run],
    data.notes[run], ...settings(run).map(pair => pair.join("="))].join(" ").toLowerCase());
  const ranges = new Map();
  let chosen = new Set(runs);
  function choose() {
    const asked = place("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
    const fits = run => asked.every(word => words[run].includes(word)) && (!ranges.size || !data.fault[run])
      && [...ranges.values()].every(({includes}) => includes(run));
    chosen = new Set(runs.filter(fits));
    const [few, all] = [chosen.size, runs.length].map(number => number.toLocaleString("en"));
    place("filtered").textContent = asked.length || ranges.size ? `${few} of ${all}` : "";
    place("clear").hidden = !ranges.size;
    for (const mark of document.querySelectorAll(".plot [data-run]")) {
      mark.classList.toggle("off", !chosen.has(Number(mark.dataset.run)));
    }
    page = 0;
    show();
  }

  // The table.
  const table = place("history");
  const heads = [...table.tHead.rows[0].cells];
  const order = {key: "made", direction: -1};
  let sorted = runs, page = 0, whole = false, metric = "accuracy";
  const columnOf = key => columns.get(key === "metric" ? metric : key);
  function sortBy(key, direction) {
    Object.assign(order, {key, direction});
    for (const head of heads) head.removeAttribute("aria-sort");
    heads.find(head => head.dataset.column === key)?.setAttribute("aria-sort", direction > 0 ? "ascending" : "descending");
    const values = runs.map(columnOf(key).value);
    sorted = [...runs].sort((a, b) => values[a] === null || values[b] === null ? (values[a] === null) - (values[b] === null)
      : direction * compare(values[a], values[b]));
    page = 0;
    show();
  }

  const cell = (head, run) => {
    const column = columnOf(head.dataset.column);
    const node = element("td", {className: head.className}, column.text(run) || (column.key === "others" ? "" : "–"));
    if (column.key === "others") node.title = column.text(run);
    else node.dataset.label = {"training loss": "loss"}[column.key] ?? column.key;
    if (column.key !== "accuracy") return node;
    node.append(...[data.interval[run], data.notes[run]].filter(Boolean).flatMap(note => [" ", element("small", {}, note)]));
    return node;
  };
  const rowOf = run => {
    const fault = data.fault[run], version = data.version[run];
    const text = data.name[run] && !fault ? data.name[run] : element("code", {}, version);
    const address = `${data.up}report/${version}/report.html`;
    const link = fault ? [text] : [tick(run), " ", element("a", {href: address, title: version}, text)];
    const tags = data.tags[run].flatMap(tag => [" ", element("span", {className: "tag"}, tag)]);
    const cells = heads.slice(1, fault ? 2 : heads.length).map(head => cell(head, run));
    if (fault) cells.push(element("td", {className: "reason", colSpan: heads.length - 2}, fault));
    const row = element("tr", {className: fault ? "faulty" : ""}, element("th", {scope: "row"}, ...link, ...tags), ...cells);
    row.dataset.row = run;
    return row;
  };
  function show() {
    const rows = sorted.filter(run => chosen.has(run));
    const size = whole ? rows.length || 1 : data.listed;
    const [from, to] = [page * size, Math.min((page + 1) * size, rows.length)];
    table.tBodies[0].replaceChildren(...rows.slice(from, to).map(rowOf));
    const numbers = [from + 1, to, rows.length, rows.length - to + from];
    const [first, last, all, left] = numbers.map(number => number.toLocaleString("en"));
    turn.hidden = rows.length <= data.listed;
    const out = left === "0" ? "" : `; ${left} ${left === "1" ? "is" : "are"} left out.`;
    place("range").textContent = turn.hidden ? "" : `Rows ${first} to ${last} of ${all}${out}`;
    [back.disabled, on.disabled] = [whole || !page, whole || to === rows.length];
  }
  const button = (text, act) => element("button", {type: "button", onclick: act}, text);
  const back = button("Previous", () => { page--; show(); });
  const on = button("Next", () => { page++; show(); });
  const every = button("All on one page", () => {
    [whole, page, every.ariaPressed] = [!whole, 0, !whole];
    show();
  });
  every.ariaPressed = false;
  const turn = element("span", {className: "controls"}, back, on, every);
  place("range").after(turn);

  const FALLING = /loss|time|memory|divergence/;
  const firstWay = key => ["made", "metric"].includes(key) && !FALLING.test(columnOf(key).key) ? -1 : 1;
  const menu = element("select", {onchange: () => sortBy(menu.value || "made", firstWay(menu.value || "made"))},
    new Option("as listed", ""), ...heads.map(head => new Option(head.textContent, head.dataset.column)));
  table.before(element("label", {className: "sort-menu"}, "Sort by ", menu));
  for (const head of heads) {
    const key = head.dataset.column;
    head.replaceChildren(button(head.textContent, () => sortBy(key, order.key === key ? -order.direction : firstWay(key))));
  }
  table.classList.add("sorts");

  // Ticked runs.
  const picked = new Set();
  const tick = run => element("label", {className: "tick"}, element("input", {
    type: "checkbox", className: "pick", value: data.version[run], checked: picked.has(run),
    ariaLabel: `Compare ${data.version[run]}`,
    onchange: event => { picked[event.target.checked ? "add" : "delete"](run); commands(); },
  }));
  const quoted = text => `'${text.replaceAll("'", "'\\''")}'`;
  const entry = run => Object.fromEntries(Object.entries(data.entries).map(([key, column]) => [key, coded(column)(run)])
    .filter(([, value]) => value !== undefined));
  function commands() {
    const box = place("picked"), ticked = [...picked];
    box.hidden = !ticked.length;
    if (ticked.length < 2) {
      box.textContent = "Tick one more run to get the commands that diff and compare the two.";
      return;
    }
    const entries = JSON.stringify(ticked.map(entry), null, 1).replace(/\n */g, " ");
    const lines = [`.venv/bin/snakemake results/compare.html --config ${quoted(`compare=${entries}`)}`];
    if (ticked.length === 2) {
      lines.unshift(`.venv/bin/snakemake results/diff.html --config 'diff=[${ticked.map(run => data.version[run])}]'`);
    }
    const left = [...new Set(ticked.flatMap(run => data.unsaid[run]))].join(", ");
    box.replaceChildren(...lines.map(line => element("code", {className: "command"}, line)),
      left && `Not in the second command, because a report does not keep them as config.yaml has them: ${left}.`);
  }

  place("filter").closest("[hidden]").hidden = false;
  place("filter").addEventListener("input", choose);
  sortBy("made", -1);

  return {
    data, place, element, compare, columns, ranges, choose, table,
    finished: runs.filter(run => !data.fault[run]),
    rows: () => sorted.filter(run => chosen.has(run) && !data.fault[run]),
    show: key => {   // this metric in its column
      const head = heads.find(one => one.dataset.column === "metric");
      if (!head) return;
      metric = head.firstChild.textContent = key;
      sortBy(order.key, order.direction);
    },
  };
})();
