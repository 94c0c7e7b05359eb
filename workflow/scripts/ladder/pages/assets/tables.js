// Tables that become cards on a phone. Without JavaScript wide tables scroll sideways.
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

for (const table of document.querySelectorAll(".wide > table.table:not(.layers)")) {
  for (const body of table.tBodies) repeat(body.rows, [...table.tHead.rows].at(-1).cells.length);
  const heads = [...[...table.tHead.rows].at(-1).cells].map(wordsOf);
  for (const row of [...table.tBodies, table.tFoot].flatMap(part => [...part?.rows ?? []])) {
    [...row.cells].forEach((cell, column) => {
      if (column && cell.colSpan === 1 && cell.textContent.trim()) cell.dataset.label ??= heads[column];
    });
  }
  table.classList.add("cards");
}
