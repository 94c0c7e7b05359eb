// Tables that sort by a column when its head is clicked, and boxes that filter the rows of a table by words.
// Without JavaScript the pages show the same rows in their original order.
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
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const first = head.dataset.first === "descending" ? -1 : 1;
      const before = head.getAttribute("aria-sort");
      const direction = before === null ? first : before === "ascending" ? -1 : 1;
      heads.forEach(other => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", direction > 0 ? "ascending" : "descending");
      body.append(...[...rows].sort((a, b) => compare(a, b, column, direction)));
    });
  });
  table.classList.add("sorts");
}

for (const box of document.querySelectorAll("input[data-filters]")) {
  const table = document.getElementById(box.dataset.filters);
  const rows = [...table.tBodies[0].rows];
  const texts = rows.map(row => `${row.textContent} ${row.dataset.text ?? ""}`.toLowerCase().replace(/\s+/g, " "));
  const count = document.getElementById(box.getAttribute("aria-describedby"));
  const filter = () => {
    const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
    rows.forEach((row, at) => { row.hidden = !words.every(word => texts[at].includes(word)); });
    const shown = rows.filter(row => !row.hidden).length;
    count.textContent = words.length ? `${shown.toLocaleString("en")} of ${rows.length.toLocaleString("en")}` : "";
  };
  box.closest("[hidden]")?.removeAttribute("hidden");
  box.addEventListener("input", filter);
  filter();
}
