// The chart of runs, any number against any other, whose rectangle selects rows; how much of a number each setting explains; and the
// curves of the chosen runs over each other.
if (runsPage) (() => {
  const {element} = dom, {place, columns, state, version, brush, percent, meanCell, tableOf, part, note, bar} = runsPage;
  const nameOf = run => columns.get("name").text(run) || version(run) || "not made";

  // Axes and points.
  const COLOURS = 10, INTERVALS = 300;   // more points have no interval each, which would hide them
  const time = run => Date.parse(columns.get("made").raw(run)) || null;
  const keyOf = (key, usual) => columns.has(state[key]) ? state[key] : usual;
  function axisOf(column, some) {
    if (column.key === "made") return {label: "made (UTC)", scale: "time"};
    if (!column.numeric) return {label: column.title, names: [...new Set(some.map(column.text))].sort(new Intl.Collator("en", {numeric: true}).compare)};
    if (column.form === "share") return {label: column.title, scale: "error", percent: true};
    return {label: column.form === "points" ? `${column.title}, points` : column.title, scale: column.form === "points" ? "linear" : "auto"};
  }
  const scaled = column => value => column.form === "points" && value !== null ? 100 * value : value;
  const placeOf = column => column.key === "made" ? time : column.numeric ? run => scaled(column)(column.value(run)) : column.text;
  function scatter(some) {
    const [x, y] = [columns.get(keyOf("x", "made")), columns.get(keyOf("y", runsPage.firstNumber()))];
    const differing = [...columns.values()].filter(column => column.kind === "setting" && column.differs);
    const colour = columns.get(keyOf("colour", (differing.find(column => new Set(some.map(column.text)).size <= COLOURS) ?? differing[0])?.key));
    const there = some.filter(run => y.value(run) !== null && placeOf(x)(run) !== null && placeOf(x)(run) !== "");
    // Lines go through the means of the runs with one value of a setting that is a number.
    const can = x.kind === "setting" && x.numeric, joined = can && state.lines, own = joined ? runsPage.distinct(there) : there;
    const {colourOf, legend} = colour ? charts.colouring(own.map(colour.value), colour.numeric && !joined) : {colourOf: () => 1, legend: [[1, "runs"]]};
    const points = [];
    const series = legend.map(([number, name]) => {
      const these = own.filter(run => (colour ? colourOf(colour.value(run)) : 1) === number);
      const groups = joined ? [...statistics.grouped(these, x.value).values()].sort(([a], [b]) => x.value(a) - x.value(b)) : these.map(run => [run]);
      const cells = groups.map(runs => meanCell(y, runs)), ends = cells.map(cell => (own.length <= INTERVALS || joined) && cell.ends?.map(scaled(y)) || [null, null]);
      points.push(...groups);
      return {mark: joined ? "line" : "dots", name: String(name), colour: number, x: groups.map(([run]) => placeOf(x)(run)), y: cells.map(cell => scaled(y)(cell.value)),
        low: ends.map(([low]) => low), high: ends.map(([, high]) => high), id: groups.map(String), text: groups.map((runs, at) => [
          runs.length > 1 ? `mean of ${runs.length} runs` : nameOf(runs[0]), `${y.title} ${cells[at].text}${cells[at].note && ` (${cells[at].note})`}`,
          ...[x, colour].filter(Boolean).map(column => `${column.title} ${column.text(runs[0]) || "–"}`)].join(", "))};
    }).filter(one => one.x.length);
    return {title: `${y.title} by ${x.title}`, x: axisOf(x, own), y: axisOf(y, own), series, own, can, varying: joined ? runsPage.varying(points) : [], labels: {x, y, colour}};
  }

  // How much of the vertical number each setting explains, over the runs that are left.
  const LEAST = 6;
  function importance(some, y) {
    const own = runsPage.distinct(some.filter(run => y.value(run) !== null));
    const shares = own.length < LEAST ? [] : [...columns.values()].filter(column => column.kind === "setting" && column.differs)
      .map(column => [column.title, statistics.explained(own.map(column.value), own.map(y.value))]).filter(([, share]) => share);
    return shares.sort(([, a], [, b]) => b - a);
  }
  function importances(some, y) {
    const shares = importance(some, y);
    place("importance").replaceChildren(...(shares.length ? [part(`What ${y.title} depends on`, tableOf("Importance of settings", ["setting", "share", ""],
      shares.map(([name, share]) => [name, percent(share, 0), bar(share)]), [1]),
      note("The share of the variance over these runs that one setting explains, minus what as many groups would explain by chance (epsilon squared). A setting of many numbers is cut into quarters. Settings that change together share it."))] : []));
  }

  // The chart, drawn again where its runs or axes are others.
  const menus = labels => Object.entries(labels).forEach(([key, column]) => { place(key).value = column?.key ?? ""; });
  let drawn = null, before = {}, brushing = false;
  function chart(some) {
    const now = String([state.x, state.y, state.colour, state.lines, state.columns]);
    if (brushing || !runsPage.firstNumber()) return;   // trainings alone have no number
    if (some === before.some && now === before.now) return void menus(before.labels);
    const {own, labels, can, varying, ...description} = scatter(some);
    before = {some, now, labels};
    menus(labels);
    importances(own, labels.y);
    place("chart-of-runs").hidden = runsPage.runs.filter(run => labels.y.value(run) !== null).length < 2;
    place("joining").hidden = !can;
    place("varying").textContent = own.length < 2 ? "Fewer than two of these runs have both numbers."
      : varying.length ? `Means over runs that differ in ${varying.map(column => column.title).join(", ")}.` : "";
    const box = place("drawn");
    if (own.length < 2) {
      box.replaceChildren();
      drawn = null;
      return;
    }
    box.className = "chart";
    box.dataset.label = description.title;
    if (drawn) drawn.update(description);
    else drawn = new charts.Chart(box, description, {brush: select, pick: ids => runsPage.choose(numbers(ids))});
  }
  const numbers = ids => ids.split(",").map(Number);   // of the runs of a point
  function select(ids) {
    brushing = true;   // the chart stays as it is, with its rectangle
    brush(ids?.flatMap(numbers));
    brushing = false;
  }
  let later;
  runsPage.afterwards.push(some => { clearTimeout(later); later = setTimeout(() => chart(some)); });   // the table is there first

  // Curves of the chosen runs.
  const KINDS = [["loss", "Training loss"], ["accuracy", "Training accuracy"], ["divergence", "Divergence"]];
  function curves(names, files, titleOf) {
    const found = names.map(name => [name, files.get(name).curves]).filter(([, own]) => own);
    return KINDS.flatMap(([key, title]) => {
      const series = found.flatMap(([name, own], at) => [
        ...(own[key]?.length ? [lineOf(own, own.step, own[key], titleOf(name), at + 1)] : []),
        ...(own.validation?.[key]?.length ? [lineOf(own, own.validation.step, own.validation[key], `${titleOf(name)}, validation`, at + 1)] : [])]);
      if (!series.length) return [];
      const box = element("div", {className: "chart", dataset: {label: title}});
      const own = part(title, box);
      requestAnimationFrame(() => new charts.Chart(box, {title, series, by: ["step", "epoch", "seconds"], x: {label: ""},
        y: key === "accuracy" ? {label: title, percent: true, scale: "linear"} : {label: title, scale: "auto"}}));
      return [own];
    });
  }
  function lineOf(own, steps, values, name, at) {
    const ends = [0, ...own.seconds.map((sum => seconds => (sum += seconds))(0))];   // seconds at the end of each epoch
    const second = step => {
      const epoch = Math.min(step / own.epoch, ends.length - 1), whole = Math.min(Math.floor(epoch), ends.length - 2);
      return ends.length < 2 ? null : ends[whole] + (epoch - whole) * (ends[whole + 1] - ends[whole]);
    };
    return {mark: "line", name, colour: at > 10 ? "rest" : at, x: steps, y: values, by: [1, 1 / own.epoch, steps.map(second)]};
  }
  Object.assign(runsPage, {curves, importance, scatter});
  runsPage.show();
})();
