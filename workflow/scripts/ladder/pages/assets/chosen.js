// The chosen runs: the commands that make them, their curves, what sets their answers apart, their mean as one classifier, and of
// two all that differs. What this needs of a run is in a script of its own beside the page, which is loaded when the run is chosen.
if (runsPage) (() => {
  const {element, button, copyButton} = dom, {data, place, columns, runs, state, change, version, FORMS, noteOf, points, percent, general} = runsPage;

  // Files of runs: each calls kernelLadder.
  const loaded = new Map(), waiting = new Map();
  globalThis.kernelLadder = (kind, of) => { loaded.set(`${kind} ${of.run}`, of); };
  function load(name, kind = "run") {
    const key = `${kind} ${name}`;
    if (loaded.has(key)) return Promise.resolve(loaded.get(key));
    if (!waiting.has(key)) {
      waiting.set(key, new Promise(resolve => {
        const file = `runs/${name}${kind === "run" ? "" : `-${kind}`}${data.mark}.js`;
        document.head.append(element("script", {src: file, onload: () => resolve(loaded.get(key) ?? null), onerror: () => resolve(null)}));
      }));
    }
    return waiting.get(key);
  }
  const KINDS = {u1: Uint8Array, u2: Uint16Array, f4: Float32Array};
  function array({kind, data: text}) {
    const bytes = Uint8Array.from(atob(text), letter => letter.charCodeAt(0));
    return new KINDS[kind](bytes.buffer);
  }

  const runOf = name => runs.find(run => version(run) === name);
  const titleOf = name => columns.get("name").text(runOf(name)) || name;
  const scored = name => ["test_accuracy", "validation_accuracy", "copies_found"].map(key => columns.get(key))
    .find(column => column?.value(runOf(name)) != null);
  function tableOf(label, heads, rows, numbers = []) {
    const cell = (value, at) => {
      const own = element(at ? "td" : "th", {className: numbers.includes(at) ? "right" : "", ...(at ? {dataset: {label: heads[at]}} : {scope: "row"})});
      own.append(...[value].flat());
      return own;
    };
    const head = element("thead", {}, element("tr", {}, ...heads.map((text, at) => element("th", {scope: "col", className: numbers.includes(at) ? "right" : ""}, text))));
    const body = element("tbody", {}, ...rows.map(row => element("tr", {}, ...row.map(cell))));
    return element("div", {className: "wide", role: "region", ariaLabel: label, tabIndex: 0}, element("table", {className: "table cards runs"}, head, body));
  }
  const part = (title, ...children) => element("div", {className: "part"}, element("h3", {}, title), ...children);
  const folded = (title, ...children) => element("details", {}, element("summary", {}, title), ...children);
  const bar = share => element("div", {className: "bar", style: `width: ${100 * share}%`});
  const small = text => element("small", {}, text);
  const note = text => element("p", {className: "small"}, text);

  // Differences to the reference, image by image on the same images.
  const sameImages = (a, b) => a && b && String(a.images) === String(b.images) && a.right.length === b.right.length;
  function answersOf(file) {
    if (!file?.answers) return null;
    if (!file.answers.right) {
      const [labels, named] = [array(file.answers.labels), array(file.answers.predictions)];
      Object.assign(file.answers, {named, right: labels.map((label, at) => label === named[at])});
    }
    return file.answers;
  }
  function counted(a, b) {   // the right answers of two on the same images
    let won = 0, lost = 0;
    a.forEach((right, at) => { won += right && !b[at]; lost += !right && b[at]; });
    return statistics.paired(won, lost, a.length);
  }
  function difference(name, other, files) {
    const [a, b] = [name, other].map(one => answersOf(files.get(one)));
    if (sameImages(a, b)) return counted(a.right, b.right);
    const [own, theirs] = [scored(name), scored(other)];
    if (!own || own !== theirs) return null;
    const [value, n, second, m] = [name, other].flatMap(one => [own.value(runOf(one)), columns.get("images").value(runOf(one))]);
    return statistics.unpaired(value, n, second, m);
  }
  const luck = ({ends}) => ends[0] <= 0 && ends[1] >= 0 ? "could be luck" : "more than luck";
  const inWords = of => [FORMS.points(of.value, of.ends), " ", small(`${noteOf("points", of.ends)}, ${luck(of)}`)];
  function differences(names, files) {
    const reference = names.includes(state.reference) ? state.reference : names[0];
    const pick = name => element("label", {className: "tick"}, element("input", {type: "radio", className: "pick", name: "reference", checked: name === reference, ariaLabel: `Compare with ${titleOf(name)}`,
      onchange: () => change({reference: name, keepPage: true})}));
    const rows = names.map(name => {
      const column = scored(name), own = name === reference ? null : difference(name, reference, files);
      const [a, b] = [name, reference].map(one => answersOf(files.get(one)));
      const otherwise = own?.paired ? a.named.reduce((sum, label, at) => sum + (label !== b.named[at]), 0) : null;
      return [[pick(name), " ", titleOf(name)], column ? [column.text(runOf(name)), " ", small(`${column.title}, ${column.note(runOf(name))}`)] : "–",
        name === reference ? "reference" : own ? inWords(own) : "not comparable",
        own?.paired ? `${own.won} : ${own.lost}` : "–", otherwise === null ? "–" : `${otherwise.toLocaleString("en")} of ${a.named.length.toLocaleString("en")}`];
    });
    return part("Against a reference", tableOf("Differences", ["run", "result", "points against the reference", "only it right : only the reference", "answered differently"], rows, [1, 2, 3, 4]),
      note("Choose the reference on the left. On the same images the interval is Bonett and Price’s of a paired difference, else Newcombe’s."), ensemble(names, reference, files));
  }

  // Several runs as one classifier, which decides on the mean of their decisions.
  const DECIDES = {svm: "the decision values of the SVM’s pairs of classes", ridge: "the scores of kernel ridge regression", evaluate: "the networks’ probabilities"};
  function ensemble(names, reference, files) {
    const box = element("p", {});
    box.append(button("Mean of their decisions", async () => { box.textContent = "Loading …"; box.textContent = await ensembleText(names, files); }, {className: "copies"}));
    return box;
  }
  async function ensembleText(names, files) {
    const members = await Promise.all(names.map(name => load(name, "decisions")));
    const answers = names.map(name => answersOf(files.get(name)));
    const gone = names.filter((_, at) => !members[at]?.values || !answers[at]);
    if (gone.length) return `The decisions of ${gone.map(titleOf).join(", ")} are not there; they are kept of the newest ${data.decided} runs.`;
    const alike = read => new Set(members.map((member, at) => String(read(member, answers[at])))).size === 1;
    if (!alike(member => member.kind)) return "Their classifiers are of different kinds, so their decisions have no mean.";
    if (!alike((_, own) => own.images)) return "They were scored on different images, so their decisions have no mean.";
    if (!alike(member => member.classes)) return "They know different classes, so their decisions have no mean.";
    const {kind, classes} = members[0], rows = answers[0].right.length;
    const labels = array(answers[0].labels);
    const named = statistics.named(statistics.average(members.map(member => array(member.values))), rows, classes.length, kind === "svm");
    const right = named.map((at, row) => classes[at] === labels[row]);
    const accuracy = right.filter(Boolean).length / rows, ends = statistics.wilson(accuracy, rows);
    const best = names.reduce((a, b) => scored(b).value(runOf(b)) > scored(a).value(runOf(a)) ? b : a);
    const over = counted(right, answersOf(files.get(best)).right);
    return `One classifier that decides on the mean of ${DECIDES[kind]}: ${FORMS.share(accuracy, ends)} (${noteOf("share", ends)}), `
      + `${FORMS.points(over.value, over.ends)} points against ${titleOf(best)}, the best of them (${noteOf("points", over.ends)}, ${luck(over)}).`;
  }

  // Two runs: what differs, the first stage first.
  const written = value => value === null || value === undefined ? "–" : typeof value === "object" ? JSON.stringify(value) : String(value);
  function pairs(a, b, read) {   // [name, of a, of b] where they differ
    const [own, theirs] = [a, b].map(stage => stage ? read(stage) : {});
    return [...new Set([...Object.keys(own), ...Object.keys(theirs)])].map(name => [name, own[name], theirs[name]])
      .filter(([, one, other]) => written(one) !== written(other));
  }
  function stagesOf(files) {
    const [a, b] = files.map(file => new Map(file.stages.map(stage => [stage.role, stage])));
    const roles = [...a.keys()];   // in the order of the work; of b each behind the one before it
    [...b.keys()].forEach((role, at, all) => { if (!a.has(role)) roles.splice(roles.indexOf(all[at - 1]) + 1, 0, role); });
    return roles.map(role => {
      const both = [a.get(role), b.get(role)];
      const same = both[0]?.version === both[1]?.version, missing = both.indexOf(undefined);
      const settings = same || missing >= 0 ? [] : pairs(...both, stage => stage.settings);
      const sources = same || missing >= 0 ? [] : pairs(...both, stage => stage.sources);
      const words = missing >= 0 ? [`only in ${"BA"[missing]}`] : [
        ...settings.slice(0, 3).map(([name, one, other]) => `${name} ${written(one)} → ${written(other)}`),
        ...(settings.length > 3 ? [`${settings.length - 3} more settings`] : []),
        ...(sources.length ? [`${sources[0][0].split("/").at(-1)}${sources.length > 1 ? ` and ${sources.length - 1} more files` : ""} changed`] : []),
      ];
      return {role, both, same, settings, sources, own: words.join(", ")};
    });
  }
  function firstDifference(stages) {
    const first = stages.find(stage => stage.own);
    if (first) return `The first difference is in ${first.role}: ${first.own}.`;
    return "There is no difference in any stage.";
  }
  const LONG = 160;   // letters of a setting, such as a list of runs
  function two(names, files) {
    const stages = stagesOf(names.map(name => files.get(name)));
    const settings = [...columns.values()].filter(column => column.kind === "setting").map(column => [column.title, ...names.map(name => column.text(runOf(name)) || "–")])
      .filter(([, a, b]) => a !== b).map(row => row.map(text => text.length > LONG ? `${text.slice(0, LONG)} …` : text));
    const numbers = [...columns.values()].filter(column => column.kind === "number").map(column => {
      const [a, b] = names.map(name => column.value(runOf(name)));
      const change = a === null || b === null || a === b ? "" : column.form === "share" ? `${points(b - a, 2)} points` : a ? `${b / a > 10 ? `${general(b / a)}×` : percent(b / a - 1)}`.replace("-", "−") : "";
      return [column.title, ...names.map(name => column.text(runOf(name)) || "–"), change];
    }).filter(([, a, b]) => a !== b);
    const machines = [...new Map(stages.filter(stage => !stage.same).flatMap(({both}) => pairs(...both, stage => stage.machine)).map(row => [String(row), row.map(written)])).values()];
    const changed = stages.filter(stage => !stage.same);
    const sources = [...new Map(stages.flatMap(stage => stage.sources).map(row => [row[0], row.map(written)])).values()];
    const of = (title, heads, rows, right) => rows.length ? [folded(`${title} (${rows.length})`, tableOf(title, heads, rows, right))] : [];
    const ab = names.map((name, at) => `${"AB"[at]} ${titleOf(name)}`);
    const parts = part("What differs", element("p", {className: "first-difference"}, firstDifference(stages)), note(`A is ${titleOf(names[0])}, B is ${titleOf(names[1])}.`),
      ...of("Settings", ["setting", ...ab], settings), ...of("Numbers", ["number", ...ab, "change"], numbers, [1, 2, 3]),
      ...of("Stages", ["stage", ...ab, "its own difference", "time"], changed.map(stage => [stage.role, ...stage.both.map(one => one?.version ?? "–"), stage.own || "its inputs",
        stage.both.every(Boolean) ? stage.both.map(one => FORMS.seconds(one.seconds)).join(" → ") : "–"])),
      ...of("Source files", ["file", ...ab], sources), ...of("Measured in stages", ["stage, number", ...ab], changed.flatMap(stage => stage.both.every(Boolean)
        ? pairs(...stage.both, one => one.numbers).map(([name, a, b]) => [`${stage.role}, ${name.replaceAll("_", " ")}`, ...[a, b].map(value => value === undefined ? "–" : general(value))]) : []), [1, 2]),
      ...of("Machines and libraries", ["fact", ...ab], machines));
    parts.querySelector("details")?.setAttribute("open", "");
    return [parts, weightsOf(names, files), ...picturesOf(names, files)];
  }

  // The distance of weights by tensor, of large ones by their sketches.
  function distances(a, b) {
    const [own, theirs] = [a, b].map(file => file.weights);
    if (!own || !theirs) return null;
    const same = Object.keys(own).length === Object.keys(theirs).length && Object.keys(own).every(name => own[name].count === theirs[name]?.count);
    if (!same) return [];
    return Object.keys(own).map(name => {
      const [one, other] = [own, theirs].map(weights => Float64Array.from(array(weights[name].values)));
      const norm = values => Math.sqrt(values.reduce((sum, value) => sum + value * value, 0));
      return {name, count: own[name].count, sketched: own[name].count > one.length, distance: norm(other.map((value, at) => value - one[at])) / norm(one)};
    });
  }
  function weightsOf(names, files) {
    const found = distances(...names.map(name => files.get(name)));
    const command = `.venv/bin/python workflow/scripts/tools/compare_weights.py ${names.map(name => columns.get("train").raw(runOf(name))).join(" ")}`;
    if (!found?.length) return part("Weights", note(found ? "The two networks have different layers." : "The weights of one are not there."));
    const text = ({distance, sketched}) => distance === 0 ? "same" : !Number.isFinite(distance) ? "–" : `${sketched ? "≈ " : ""}${percent(distance)}`;
    const most = Math.max(...found.map(one => one.distance).filter(Number.isFinite));
    if (!most) return part("Weights", note("All weights are the same."));
    return part("Weights", folded(`The distance of B’s weights from A’s, of each of ${found.length} tensors`, tableOf("Weights", ["tensor", "values", "distance", ""],
      found.map(one => [one.name, one.count.toLocaleString("en"), text(one), bar(Number.isFinite(one.distance) ? one.distance / most : 0)]), [1, 2]), note(`|B − A| / |A|; ≈ marks a large tensor, known within about 4 %. This is exact, and has the largest difference:`), commandLine(command)));
  }

  // Pictures that only one of the two gets right are among the errors of the other.
  const MOST = 40;
  function picturesOf(names, files) {
    const answers = names.map(name => answersOf(files.get(name)));
    if (!sameImages(...answers)) return [];
    const shown = [0, 1].flatMap(at => {
      const [own, other] = [answers[at], answers[1 - at]], sheet = other.errors;
      const rows = sheet?.rows.map((row, place) => ({row, place})).filter(({row}) => own.right[row]) ?? [];
      if (!rows.length) return [];
      const labels = array(own.labels);
      return [element("h4", {}, `Only ${"AB"[at]} is right`), element("p", {className: "sprites"}, ...rows.slice(0, MOST).map(({row, place}) => {
        const picture = element("i", {role: "img", title: `image ${row}: ${own.classes[labels[row]]}, ${"AB"[1 - at]} says ${own.classes[other.named[row]]}`});
        picture.ariaLabel = picture.title;
        picture.style.cssText = `--width:${sheet.width};--height:${sheet.height};--columns:${sheet.columns};--x:${place % sheet.columns};--y:${Math.floor(place / sheet.columns)};background-image:url(runs/${names[1 - at]}-errors${data.mark}.webp)`;
        return picture;
      }))];
    });
    return shown.length ? [part("Pictures that only one gets right", ...shown)] : [];
  }

  const commandLine = text => element("p", {className: "line"}, element("code", {className: "command"}, text), " ", copyButton("copy", () => text, {className: "copies"}));
  function commands(names) {
    const some = names.map(runOf), left = [...new Set(some.flatMap(runsPage.unsaid))].join(", ");
    const made = some.filter(run => columns.get("state").text(run) === "finished");
    return element("div", {className: "lines"}, ...made.slice(0, 1).filter(() => names.length === 1).map(run => commandLine(runsPage.command(run))),
      ...(names.length > 1 && made.length ? [commandLine(runsPage.listing(made))] : []),
      ...(left ? [note(`Not in the command, because a report does not keep them as config.yaml has them: ${left}.`)] : []));
  }

  let turn = 0, before = "";
  async function panel() {
    const names = state.chosen, now = String([names, state.reference]);
    place("chosen").hidden = !names.length;
    if (now === before) return;
    before = now;
    const mine = ++turn, files = new Map();
    const chips = element("p", {className: "chips"}, ...names.map(name => element("span", {className: "tag"}, titleOf(name), " ",
      button("×", () => change({chosen: state.chosen.filter(one => one !== name), keepPage: true}), {className: "link", ariaLabel: `Leave out ${titleOf(name)}`}))),
      " ", button("Choose none", () => change({chosen: [], keepPage: true}), {className: "link"}));
    place("panel").replaceChildren(chips, commands(names), note("Loading …"));
    for (const [at, file] of (await Promise.all(names.map(name => load(name)))).entries()) if (file) files.set(names[at], file);
    if (mine !== turn) return;
    const gone = names.filter(name => !files.has(name)), there = names.filter(name => files.has(name));
    place("panel").replaceChildren(chips, commands(names),
      ...(gone.length ? [note(`results/runs/ has no file of ${gone.map(titleOf).join(", ")}: .venv/bin/snakemake runs makes it.`)] : []),
      element("div", {className: "beside"}, ...runsPage.curves(there, files, titleOf)),
      ...(there.length > 1 ? [differences(there, files)] : [note("Choose one more run to see what sets the two apart.")]),
      ...(there.length === 2 ? two(there, files) : []));
  }
  runsPage.afterwards.push(panel);
  Object.assign(runsPage, {load, array, tableOf, part, note, bar, counted, distances, stagesOf, ensembleText});
})();
