// Tables that become cards on a phone, and tables that sort by a column when its head is clicked. Without JavaScript the pages show
// the same rows in their original order, and wide tables scroll sideways.
const wordsOf = head => [...head.childNodes].map(one => one.textContent.trim()).filter(Boolean).join(" ");   // also around <br>

// A cell over several rows is repeated in each of them, which only cards show.
const repeat = (rows, columns) => {
  const over = Array(columns).fill(null);   // by column: {cell, left: rows below that it covers}
  for (const row of rows) {
    for (let column = 0; column < columns; column++) {
      if (over[column]?.left) {
        const copy = over[column].cell.cloneNode(true);
        copy.removeAttribute("rowspan");
        copy.classList.add("on-phone");
        row.insertBefore(copy, row.cells[column] ?? null);
        over[column].left--;
      } else if (row.cells[column]?.rowSpan > 1) {
        over[column] = {cell: row.cells[column], left: row.cells[column].rowSpan - 1};
      }
    }
  }
};

for (const table of document.querySelectorAll(".wide > table.table:not(.heat, .layers)")) {
  for (const body of table.tBodies) repeat(body.rows, [...table.tHead.rows].at(-1).cells.length);
  const heads = [...[...table.tHead.rows].at(-1).cells].map(wordsOf);
  for (const row of [...table.tBodies, table.tFoot].flatMap(part => [...part?.rows ?? []])) {
    [...row.cells].forEach((cell, column) => {
      if (column && cell.colSpan === 1 && cell.textContent.trim()) cell.dataset.label ??= heads[column];
    });
  }
  table.classList.add("cards");
}

for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  const body = table.tBodies[0];
  const rows = [...body.rows];
  // Numbers are compared as numbers; empty cells come last in both directions.
  const compare = (a, b, column, direction) => {
    const [x, y] = [a, b].map(row => row.cells[column]?.dataset.value ?? "");
    if (x === "" || y === "") return (x === "") - (y === "");
    const difference = Number.isNaN(Number(x) + Number(y)) ? x.localeCompare(y, "en", {numeric: true}) : x - y;
    return direction * difference;
  };
  const sort = (column, direction) => {
    heads.forEach(other => other.removeAttribute("aria-sort"));
    heads[column].setAttribute("aria-sort", direction > 0 ? "ascending" : "descending");
    body.append(...[...rows].sort((a, b) => compare(a, b, column, direction)));
  };
  const firstOf = head => head.dataset.first === "descending" ? -1 : 1;
  // Where the heads are not shown, because the rows are cards: a menu of them.
  const menu = document.createElement("select");
  menu.append(new Option("as listed", ""), ...heads.map((head, column) => new Option(head.textContent.trim(), column)));
  menu.addEventListener("change", () => menu.value === "" ? body.append(...rows) : sort(menu.value, firstOf(heads[menu.value])));
  const label = Object.assign(document.createElement("label"), {className: "sort-menu", textContent: "Sort by "});
  label.append(menu);
  table.before(label);
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const before = head.getAttribute("aria-sort");
      sort(column, before === null ? firstOf(head) : before === "ascending" ? -1 : 1);
    });
  });
  table.classList.add("sorts");
}
