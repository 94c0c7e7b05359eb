// All runs as one table: columns of settings and numbers, filtered, sorted, grouped, or two keys against each other; the state is in
// the address. runs_charts.js draws them, chosen.js shows what is chosen.
// The bar of every page leads to the entries of the others at the end of this one, and on to the page if it is there.
function goOn() {
  const page = document.getElementById(location.hash.slice(1))?.closest(".pages > div")?.querySelector("a");
  if (page) location.replace(page.href);
}
addEventListener("hashchange", goOn);
goOn();

const runsPage = (() => {
  const source = document.getElementById("data");
  if (!source) return null;
  const data = JSON.parse(source.textContent);
  const place = id => document.getElementById(id);
  const {element, button, copyButton} = dom;

  // Columns: key -> {key, kind: about, setting or number; title, form, text, better, value and text of a run, ends of its interval}.
  const decoded = coded => Array.isArray(coded) ? run => coded[run]
    : typeof coded.of === "number" ? () => coded.values[coded.of] : run => coded.values[coded.of[run]];
  const NARROW = "\u202f";
  const minus = text => text.replaceAll("-", "−");
  // As toFixed, but what lies in the middle between two goes to the even one, as in Python.
  const fixed = (value, digits) => Math.abs(value * 10 ** digits % 1) === 0.5 && Number.isInteger(value * 2 ** (digits + 1))
    ? (2 * Math.round(value * 10 ** digits / 2) / 10 ** digits).toFixed(digits) : value.toFixed(digits);
  const percent = (share, digits = 1) => `${fixed(100 * share, digits)}${NARROW}%`;
  const points = (share, digits) => Number(fixed(100 * share, digits)) === 0 ? (0).toFixed(digits)
    : minus(`${share > 0 ? "+" : ""}${fixed(100 * share, digits)}`);
  const general = number => {
    const exponent = number ? Math.floor(Math.log10(Math.abs(Number(number.toPrecision(4))))) : 0;
    if (exponent >= -4 && exponent < 4) return String(Number(number.toPrecision(4)));
    return Number(number.toPrecision(4)).toExponential().replace(/e([+-])(\d)$/, "e$10$2");
  };
  const scaled = (number, units, step = 1000) => {
    let at = 0;
    while (number >= step && at < units.length - 1) { number /= step; at++; }
    return `${fixed(number, at ? 1 : 0)}${NARROW}${units[at]}`;
  };
  const whole = number => Math.round(number).toLocaleString("en");
  const seconds = number => {
    if (number < 0.1) return `${fixed(1000 * number, 0)}${NARROW}ms`;
    if (number < 10) return `${fixed(number, 1)}${NARROW}s`;
    const all = Math.round(number);
    if (all < 60) return `${all}${NARROW}s`;
    const [large, small, units] = all < 3600 ? [all / 60, all % 60, ["min", "s"]] : [all / 3600, all % 3600 / 60, ["h", "min"]];
    return `${Math.floor(large)}${NARROW}${units[0]}${NARROW}${Math.floor(small)}${NARROW}${units[1]}`;
  };
  const relative = share => {
    let digits = 1;
    while (digits < 6 && Math.abs(100 * share) > 0 && Math.abs(100 * share) < 10 ** (1 - digits)) digits++;
    return minus(percent(share, digits));
  };
  const FORMS = {   // form -> text of a value with its interval, or null for none
    share: (value, ends) => percent(value, ends ? statistics.decimals(ends) : 1),
    points: (value, ends) => points(value, ends ? statistics.decimals(ends) : 1),
    number: general, seconds, relative,
    rate: value => value >= 10 ? whole(value) : fixed(value, 1),
    bytes: value => scaled(value, ["B", "kB", "MB", "GB"]),
    count: whole, setting: String, text: String,
  };
  // The ends of an interval; nothing where both read the same.
  const noteOf = (form, ends) => {
    const texts = (ends ?? []).map(end => form === "share" ? fixed(100 * end, statistics.decimals(ends)) : FORMS[form](end, ends));
    return texts[0] === texts[1] ? "" : texts.join(" to ");
  };
  const moment = text => text.slice(0, 16).replace("T", " ");
  function columnOf(column) {
    const read = decoded(column.values);
    const ends = run => column.ends?.[run] ?? null;
    const empty = value => value === null || value === undefined || value === "";
    const kinds = Array.isArray(column.values) ? column.values : column.values.values;
    const numeric = column.kind === "number" || column.key === "trial"
      || column.kind === "setting" && kinds.every(value => value === null || value !== "" && !Number.isNaN(Number(value)));
    const plain = column.key === "made" ? moment : Array.isArray(kinds[0]) ? value => value.join(" ") : String;
    const value = run => empty(read(run)) ? null : numeric ? Number(read(run)) : column.kind === "about" ? plain(read(run)) : read(run);
    const text = run => value(run) === null ? "" : column.kind === "number" ? FORMS[column.form](value(run), ends(run)) : plain(read(run));
    return {...column, numeric, value, ends, text, raw: read, note: run => noteOf(column.form, ends(run)),
      differs: new Set(kinds.filter(one => one !== null).map(String)).size > 1};
  }
  const columns = new Map(data.columns.map(column => [column.key, columnOf(column)]));
  const runs = Array.from({length: data.count}, (_, run) => run);
  const version = columns.get("run").raw;
  const state = {q: "", sort: "", columns: data.shown, group: [], rows: "", across: "", value: "", x: "", y: "", colour: "", lines: "",
    chosen: [], reference: "", against: ""};
  const START = structuredClone(state);

  // The state is in the address: lists have a key for each of their values.
  function readAddress() {
    const given = new URLSearchParams(location.hash.slice(1));
    for (const [key, usual] of Object.entries(START)) {
      state[key] = !given.has(key) ? structuredClone(usual) : Array.isArray(usual) ? given.getAll(key).filter(Boolean) : given.get(key);
    }
    const known = key => columns.has(key);
    state.columns = state.columns.filter(known);
    state.group = state.group.filter(known);
    for (const key of ["rows", "across", "value", "x", "y", "colour"]) {
      if (!known(state[key])) state[key] = [...columns.keys()].find(one => state[key] && one.startsWith(`${state[key]}_`)) ?? "";
    }
    state.chosen = state.chosen.map(name => runs.find(run => version(run).startsWith(name) || columns.get("train").raw(run) === name))
      .filter(run => run !== undefined).map(version);
  }
  function writeAddress() {
    const words = new URLSearchParams();
    for (const [key, usual] of Object.entries(START)) {
      if (String(state[key]) === String(usual)) continue;
      for (const value of [state[key]].flat()) words.append(key, value);
      if (Array.isArray(state[key]) && !state[key].length) words.append(key, "");
    }
    const hash = String(words);
    history.replaceState(null, "", hash ? `#${hash}` : location.pathname + location.search);
  }
  function change(part) {
    Object.assign(state, part);
    if (!("keepPage" in part)) page = 0;
    delete state.keepPage;
    writeAddress();
    show();
  }

  // Which runs: words that they hold, settings and numbers that they have, and what a brush has left.
  const NUMBER = {">": (a, b) => a > b, "<": (a, b) => a < b, ">=": (a, b) => a >= b, "<=": (a, b) => a <= b};
  let words;
  function wordsOf(run) {
    words ??= runs.map(one => [...columns.values()].filter(column => column.kind !== "number")
      .map(column => column.text(one)).join(" ").toLowerCase());
    return words[run];
  }
  function test(word) {
    if (word.length > 1 && word.startsWith("-")) {
      const not = test(word.slice(1));
      return run => !not(run);
    }
    const [, key, sign, wanted] = word.match(/^([\w ,]+?)(>=|<=|=|>|<|:)(.*)$/) ?? [];
    const column = columns.get(key === "tag" ? "tags" : key);
    if (!column) return run => wordsOf(run).includes(word);
    if (sign === ":") return run => [column.raw(run)].flat().some(one => String(one).toLowerCase() === wanted);
    if (sign in NUMBER) return run => column.value(run) !== null && NUMBER[sign](column.value(run), Number(wanted));
    return run => column.numeric && wanted !== "" && !Number.isNaN(Number(wanted)) ? column.value(run) === Number(wanted)
      : column.text(run).toLowerCase() === wanted;
  }
  let brushed = null;   // a Set of runs, or null for all
  let left = {};
  function filtered() {   // the same array as before where the filter is the same
    if (left.q === state.q && left.brushed === brushed) return left.some;
    const tests = state.q.toLowerCase().match(/[^\s"]*"[^"]*"|\S+/g)?.map(word => test(word.replaceAll('"', ""))) ?? [];
    const some = runs.filter(run => (!brushed || brushed.has(run)) && tests.every(fits => fits(run)));
    left = {q: state.q, brushed, some};
    return some;
  }

  // Rows: {key, cells: [{value, text, note}], value of a column, runs}; heads: [{key, title, text, numeric}].
  const collator = new Intl.Collator("en", {numeric: true});
  const compare = (a, b) => a === null || b === null ? (a === null) - (b === null)
    : typeof a === "number" && typeof b === "number" ? a - b : collator.compare(a, b);
  function sorted(rows, heads) {
    const [down, key] = state.sort.startsWith("-") ? [-1, state.sort.slice(1)] : [1, state.sort];
    const at = heads.findIndex(head => head.key === key);
    if (at < 0) return rows;
    const pairs = rows.map(row => [row.value ? row.value(at) : row.cells[at].value, row]);
    pairs.sort(([a], [b]) => a === null || b === null ? compare(a, b) : down * compare(a, b));
    return pairs.map(([, row]) => row);
  }
  const single = shown => run => ({   // its cells are made when they are seen
    runs: [run],
    value: at => shown[at].value(run),
    get cells() { return shown.map(column => ({value: column.value(run), text: column.text(run), note: column.note(run), ends: column.ends(run)})); },
  });
  const bounds = form => ({share: [0, 1], points: [-1, 1], number: [], relative: []})[form] ?? [0];
  function meanCell(column, some) {
    const values = some.map(column.value).filter(value => value !== null);
    if (!values.length) return {value: null, text: "", note: ""};
    const own = statistics.spread(values, data.t, ...bounds(column.form));
    const ends = values.length === 1 ? column.ends(some.find(run => column.value(run) !== null)) : own.ends;
    const note = [noteOf(column.form, ends), ...values.length < some.length ? [`${values.length} of ${some.length} runs`] : []];
    return {value: own.mean, text: FORMS[column.form](own.mean, ends), note: note.filter(Boolean).join(", "), ends, n: values.length};
  }
  const keyOf = keys => run => JSON.stringify(keys.map(key => columns.get(key).text(run)));
  // A run that two reports show counts once; data.again: such a run -> the first of its reports.
  function distinct(some) {
    const firsts = new Set();
    return some.filter(run => !firsts.has(data.again[run] ?? run) && firsts.add(data.again[run] ?? run));
  }
  function groups(some) {   // in the order of their keys
    const order = ([, [a]], [, [b]]) => state.group.reduce((before, key) => before || compare(columns.get(key).value(a), columns.get(key).value(b)), 0);
    return [...statistics.grouped(distinct(some), keyOf(state.group))].sort(order).map(([key, own]) => ({key, runs: own}));
  }
  // The settings that differ within a group, such as the seed; runs of two groups are pairs if they agree in these.
  const varying = groups => [...columns.values()].filter(column => column.kind === "setting" && column.differs
    && groups.some(some => new Set(some.map(column.text)).size > 1));
  const pairing = all => keyOf(varying(all.map(group => group.runs)).map(column => column.key));
  const nearChance = some => some.every(run => {
    const [chance, reached] = ["chance", "test_accuracy"].map(key => columns.get(key)?.value(run) ?? null);
    return chance !== null && reached !== null && reached - chance < 0.1 * (1 - chance);
  });
  function againstCell(column, group, reference, pair) {
    if (!reference || reference === group) return {value: null, text: "", note: reference === group ? "reference" : ""};
    const theirs = new Map(reference.runs.map(run => [pair(run), column.value(run)]));
    const differences = group.runs.map(run => [column.value(run), theirs.get(pair(run)) ?? null]).filter(both => !both.includes(null))
      .map(([own, other]) => Number((own - other).toFixed(12)));
    if (!differences.length) return {value: null, text: "", note: "no pair of runs"};
    const form = column.form === "share" ? "points" : column.form;
    const {mean, ends, n} = statistics.spread(differences, data.t, ...bounds(form));
    const luck = nearChance([...group.runs, ...reference.runs]) ? "both near chance" : !ends ? n > 1 ? `the same in ${n} pairs` : "one pair"
      : [noteOf(form, ends), `${n} pairs`, ends[0] <= 0 && ends[1] >= 0 ? "could be luck" : "more than luck"].filter(Boolean).join(", ");
    return {value: mean, text: FORMS[form](mean, ends), note: luck, ends};
  }
  function table(some) {
    const shown = state.columns.map(key => columns.get(key));
    if (!state.group.length) return {heads: shown, rows: some.map(single(shown))};
    const keys = state.group.map(key => columns.get(key));
    const numbers = shown.filter(column => column.kind === "number");
    const all = groups(some), pair = pairing(all);
    const reference = all.find(group => group.key === state.against);
    const measured = numbers[0];
    return {
      heads: [...keys, {key: "runs", title: "runs", text: "number of runs of the group", numeric: true},
        ...numbers.map(column => ({...column, title: `mean ${column.title}`})),
        ...(reference && measured ? [{key: "difference", title: `${measured.title} against the reference`, numeric: true, text: "mean of the differences of pairs"}] : [])],
      rows: all.map(group => ({...group, cells: [
        ...keys.map(column => ({value: column.value(group.runs[0]), text: column.text(group.runs[0]), note: ""})),
        {value: group.runs.length, text: String(group.runs.length), note: ""},
        ...numbers.map(column => meanCell(column, group.runs)),
        ...(reference && measured ? [againstCell(measured, group, reference, pair)] : []),
      ]})),
    };
  }
  function pivot(all) {
    const [down, across, measured] = [state.rows, state.across, measuredKey()].map(key => columns.get(key));
    const some = distinct(all.filter(run => measured.value(run) !== null));
    const texts = column => [...new Set(some.map(column.text))].sort(compare);
    const heads = [{...down, title: `${down.title} \\ ${across.title}`}, ...texts(across).map(text => ({key: `across ${text}`, title: text || "–", text: across.title, numeric: true}))];
    const cells = statistics.grouped(some, run => JSON.stringify([down.text(run), across.text(run)]));
    return {heads, measured, rows: texts(down).map(text => ({runs: some.filter(run => down.text(run) === text), cells: [
      {value: text || null, text: text || "–", note: ""},
      ...texts(across).map(other => {
        const own = cells.get(JSON.stringify([text, other])) ?? [];
        return {...meanCell(measured, own), runs: own};
      }),
    ]}))};
  }
  // The number that is shown first and that one of the runs has which are left.
  function firstNumber() {
    const numbers = [...state.columns.map(key => columns.get(key)), ...columns.values()].filter(column => column.kind === "number");
    return (numbers.find(column => filtered().some(run => column.value(run) !== null)) ?? numbers[0])?.key;
  }
  const measuredKey = () => state.value || firstNumber();   // in the cells of rows by columns
  const isPivot = () => Boolean(state.rows && state.across && firstNumber());

  // What is seen.
  let page = 0, all = false, view;
  const node = place("runs");
  function show() {
    const some = filtered();
    view = isPivot() ? pivot(some) : table(some);
    view.rows = sorted(view.rows, view.heads);
    const size = all ? view.rows.length || 1 : data.listed;
    const [from, to] = [page * size, Math.min((page + 1) * size, view.rows.length)];
    const levels = isPivot() ? view.rows.flatMap(row => row.cells.slice(1).map(cell => cell.value)).filter(value => value !== null) : [];
    const range = [Math.min(...levels), Math.max(...levels)];
    node.tHead.replaceChildren(element("tr", {}, ...view.heads.map(headOf), ...(state.group.length && !isPivot() ? [element("th", {scope: "col"}, "reference")] : isPivot() ? [] : [element("th", {scope: "col"}, "make it again")])));
    node.tBodies[0].replaceChildren(...view.rows.slice(from, to).map(row => rowOf(row, range)));
    place("none").hidden = view.rows.length > 0;
    place("value").value = measuredKey() ?? "";
    node.classList.toggle("pivot", isPivot());
    place("filtered").textContent = some.length === runs.length ? `${whole(runs.length)} run${runs.length > 1 ? "s" : ""}` : `${whole(some.length)} of ${whole(runs.length)} runs`;
    place("range").textContent = view.rows.length > size ? `Rows ${whole(from + 1)} to ${whole(to)} of ${whole(view.rows.length)}` : "";
    place("turn").hidden = view.rows.length <= data.listed;
    [place("back").disabled, place("on").disabled] = [all || !page, all || to >= view.rows.length];
    place("unbrush").hidden = !brushed;
    place("sorted").replaceChildren(new Option("as listed", ""), ...view.heads.map(head => new Option(head.title, nextSort(head))));
    place("sorted").value = state.sort;
    for (const act of afterwards) act(some, view);
  }
  const afterwards = [];
  const firstSort = head => `${head.numeric && head.kind !== "setting" && head.better !== -1 || head.key === "made" ? "-" : ""}${head.key}`;
  const nextSort = head => [head.key, `-${head.key}`].includes(state.sort) ? state.sort : firstSort(head);
  function headOf(head) {
    const down = state.sort === `-${head.key}`, up = state.sort === head.key;
    const next = up ? `-${head.key}` : down ? head.key : firstSort(head);
    return element("th", {scope: "col", title: head.text, className: head.numeric ? "right" : "", ariaSort: down ? "descending" : up ? "ascending" : "none"},
      button(head.title, () => change({sort: next})));
  }
  function rowOf(row, range) {
    const grouped = Boolean(state.group.length) && !isPivot();
    const [first, ...rest] = row.cells.map((cell, at) => cellOf(cell, view.heads[at], row, at, range));
    const line = element("tr", {}, first, ...rest);
    if (!grouped && !isPivot()) {
      const run = row.runs[0], made = columns.get("state").text(run) === "finished";
      line.append(element("td", {className: "copying"}, ...(made ? [copyButton("Copy command", () => command(run), {className: "link"})] : [])));
    }
    if (grouped) line.append(element("td", {}, button(state.against === row.key ? "reference" : "compare with this", () => change({against: state.against === row.key ? "" : row.key}), {className: "link"})));
    line.classList.toggle("chosen", !grouped && !isPivot() && state.chosen.includes(version(row.runs[0])));
    return line;
  }
  function cellOf(cell, head, row, at, [low, high]) {
    const isRun = head.key === "run" && !state.group.length && !isPivot();
    const tag = at ? "td" : "th";
    const own = element(tag, {className: head.numeric ? "right" : "", ...(at ? {dataset: {label: head.title}} : {scope: "row"})});
    if (isRun) return runCell(own, row.runs[0]);
    const brief = head.kind === "setting" && head.numeric && cell.text.length > 9 ? general(Number(cell.text)) : cell.text;
    if (brief !== cell.text) own.title = cell.text;
    own.append(brief || "–");
    if (cell.note) own.append(" ", element("small", {}, cell.note));
    if (isPivot() && at && cell.value !== null) {
      own.style.setProperty("--strength", `${high > low ? Math.round(60 * (cell.value - low) / (high - low)) : 0}%`);
      own.title = `${cell.n} run${cell.n > 1 ? "s" : ""}`;
      if (cell.n > 1) own.append(" ", element("small", {}, `n ${cell.n}`));
    }
    return own;
  }
  const FOLDED = ["finished", "trained"];
  function runCell(own, run) {
    const [name, status, reason, train] = ["name", "state", "reason", "train"].map(key => columns.get(key).text(run));
    const done = FOLDED.includes(status);
    const title = name || version(run) || "not made";
    const address = status === "finished" ? `report/${version(run)}/report.html` : status === "running" ? `../logs/train/${version(run)}.html` : "";
    const tick = element("input", {type: "checkbox", className: "pick", checked: state.chosen.includes(version(run)), disabled: !done,
      ariaLabel: `Choose ${title}`, onchange: event => choose([run], event.target.checked)});
    const picture = (file, what) => element("a", {className: "picture-of", href: `runs/${file}`}, element("img", {loading: "lazy", alt: what, title: what, src: `runs/${file}`,
      onerror: event => event.target.parentNode.remove()}));
    own.append(element("label", {className: "tick"}, tick));
    if (done && train) own.append(picture(`${train}${data.mark}.png`, "The strongest filters of the first layer"));
    const multiplier = ["test_multiplier", "multiplier"].map(key => columns.get(key)?.text(run)).find(name => name && name !== "same");
    if (data.multipliers.includes(multiplier)) own.append(picture(`${multiplier}${data.mark}.png`,
      `Errors of ${multiplier}: rows are the first operand from 1 to 2, columns the second; orange is too large, blue too small`));
    own.append(" ", address ? element("a", {href: address, title: version(run)}, title) : element("span", {title: version(run)}, title));
    for (const tag of columns.get("tags").raw(run)) own.append(" ", element("span", {className: "tag"}, tag));
    if (status !== "finished") own.append(" ", element("small", {title: reason}, reason ? `${status}: ${reason}` : status));
    return own;
  }
  function choose(some, is = true) {
    const names = some.map(version);
    change({chosen: is ? [...new Set([...state.chosen, ...names])] : state.chosen.filter(one => !names.includes(one)), keepPage: true});
  }

  // Commands that make a run, or list several.
  const quoted = text => `'${text.replaceAll("'", "'\\''")}'`;
  const entries = Object.entries(data.entries).map(([key, coded]) => [key, decoded(coded)]);
  const entry = run => Object.fromEntries(entries.map(([key, value]) => [key, value(run)]).filter(([, value]) => value).map(([key, [value]]) => [key, value]));
  const json = value => JSON.stringify(value, null, 1).replace(/\n */g, " ");
  const command = run => [".venv/bin/snakemake report", ...(Object.keys(entry(run)).length ? ["--config"] : []),
    ...Object.entries(entry(run)).map(([key, value]) => quoted(`${key}=${typeof value === "string" ? value : json(value)}`))].join(" ");
  function listing(some) {   // an entry of a list has no list of its own, and a name is of one entry
    const names = new Set();
    const listed = some.map(entry).map(({runs: _, name, ...own}) => {
      const free = name && !names.has(name);
      names.add(name);
      return free ? {...own, name} : own;
    });
    return `.venv/bin/snakemake runs --config ${quoted(`runs=${json(listed)}`)}`;
  }
  const unsaid = decoded(data.unsaid);

  // What is seen as CSV: every row of the view in its order, an interval in two columns.
  function csv() {
    const cells = view.rows.map(row => row.cells), has = view.heads.map((_, at) => cells.some(row => row[at].ends));
    const heads = view.heads.flatMap((head, at) => has[at] ? [head.title, `${head.title}, low`, `${head.title}, high`] : [head.title]);
    const lines = cells.map(row => row.flatMap((cell, at) => has[at] ? [cell.value, ...(cell.ends ?? ["", ""])] : [cell.value]));
    return saving.csv([heads, ...lines]);
  }
  // The controls.
  const KINDS = [["about", "The run"], ["setting", "Settings"], ["number", "Numbers"]];
  const option = ({key, title, differs}) => new Option(title + (differs ? "" : " (all alike)"), key);
  function options(menu, fits, none) {
    menu.replaceChildren(...(none === undefined ? [] : [new Option(none, "")]));
    for (const [kind, label] of KINDS) {
      const own = [...columns.values()].filter(column => column.kind === kind && fits(column));
      own.sort((a, b) => b.differs - a.differs);
      if (own.length) menu.append(element("optgroup", {label}, ...own.map(option)));
    }
  }
  function checks(box, key, fits) {
    box.replaceChildren(...KINDS.map(([kind, label]) => {
      const own = [...columns.values()].filter(column => column.kind === kind && fits(column)).sort((a, b) => b.differs - a.differs);
      return element("fieldset", {}, element("legend", {}, label), ...own.map(column => element("label", {title: column.text},
        element("input", {type: "checkbox", className: "pick", checked: state[key].includes(column.key), onchange: event => {
          const others = state[key].filter(one => one !== column.key);
          change({[key]: event.target.checked ? [...others, column.key] : others});
        }}), " ", column.title)));
    }));
  }
  const MENUS = {rows: ["–", column => column.kind !== "number"], across: ["–", column => column.kind !== "number"], value: [undefined, column => column.kind === "number"],
    x: ["–", column => column.numeric || column.kind !== "about" || column.key === "made"], y: ["–", column => column.kind === "number"], colour: ["none", column => column.differs]};
  function controls() {
    place("q").value = state.q;
    for (const [key, [none, fits]] of Object.entries(MENUS)) {
      options(place(key), fits, none);
      place(key).value = state[key];
    }
    place("lines").checked = Boolean(state.lines);
    checks(place("columns"), "columns", () => true);
    checks(place("group"), "group", column => column.kind !== "number" && column.key !== "run");
  }

  readAddress();
  controls();
  place("controls").hidden = false;
  place("q").addEventListener("input", () => change({q: place("q").value}));
  for (const key of Object.keys(MENUS)) place(key).addEventListener("change", () => change({[key]: place(key).value}));
  place("lines").addEventListener("change", () => change({lines: place("lines").checked ? "1" : ""}));
  place("sorted").addEventListener("change", () => change({sort: place("sorted").value}));
  place("back").addEventListener("click", () => { page--; show(); });
  place("on").addEventListener("click", () => { page++; show(); });
  place("all").addEventListener("click", () => { [all, page] = [!all, 0]; place("all").ariaPressed = all; show(); });
  place("csv").addEventListener("click", () => saving.download(saving.table(csv()), "runs.csv"));
  place("unbrush").addEventListener("click", () => brush(null));
  place("plain").addEventListener("click", () => { brushed = null; change(structuredClone(START)); controls(); });
  place("address").replaceWith(copyButton("Copy link", () => location.href));
  addEventListener("hashchange", () => {
    if (location.hash && !location.hash.includes("=")) return;   // the anchor of a heading
    readAddress();
    controls();
    page = 0;
    show();
  });
  const brush = some => { brushed = some ? new Set(some) : null; page = 0; show(); };

  return {data, place, columns, runs, state, change, version, show, brush, afterwards, FORMS, noteOf, points, percent, general,
    command, listing, unsaid, csv, firstNumber, choose, meanCell, varying, distinct, view: () => view, filtered};
})();
